//! Is every field of Dynamo's translated or explained, and every mistake told?
