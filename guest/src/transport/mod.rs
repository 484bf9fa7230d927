//! The byte streams to the server and the frames on them.
//!
//! From the outside in: `sockets` dials and listens, `noise_listener` accepts TCP callers that have the key,
//! `noise_stream` encrypts such a connection, `byte_stream` is either a plain or an encrypted one, `frame`
//! and `connection` are the protocol without input or output, and `write_queue` holds frames until they are
//! written.

pub mod byte_stream;
pub mod connection;
pub mod frame;
pub mod noise_listener;
pub mod noise_stream;
pub mod sockets;
pub mod write_queue;
