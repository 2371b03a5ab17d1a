//! How does a page of metrics become families and problems?

/// Stand-in until the reader lands.
#[derive(Debug)]
pub struct Page<'a>(pub &'a str);
