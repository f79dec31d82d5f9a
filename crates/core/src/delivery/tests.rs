//! Two ends, and what is between them.

mod basics;
mod farewell;
mod handed;
mod hostile;
mod model;
mod oracle;
mod pace;
mod random;
mod reorder;
mod world;
