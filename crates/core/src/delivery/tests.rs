//! Two ends, and what is between them.

mod basics;
mod hostile;
mod model;
mod oracle;
mod pace;
mod random;
mod world;
