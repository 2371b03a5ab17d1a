//! How does a page of metrics become families and problems?
