//! Why a request failed, as it is reported to the server.

use crate::value::Value;

/// What a RESET frame carries. `code` is one of the codes of `sdk/src/protocol/error.ts`.
#[derive(Debug)]
pub struct Failure {
    /// From the closed list.
    pub code: &'static str,
    /// A sentence without a full stop.
    pub message: String,
    /// Machine-readable additions, `errno` among them.
    pub details: Vec<(String, Value)>,
}

impl Failure {
    /// A failure without details.
    pub fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), details: Vec::new() }
    }

    /// Adds a detail.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Failure {
        self.details.push((key.to_owned(), value.into()));
        self
    }

    /// What an errno means, after `doing` ("read \"/etc/x\"").
    pub fn from_errno(errno: i32, doing: &str) -> Failure {
        let (code, name) = match errno {
            libc::ENOENT => ("not_found", "ENOENT"),
            libc::EACCES => ("permission_denied", "EACCES"),
            libc::EPERM => ("permission_denied", "EPERM"),
            libc::EROFS => ("permission_denied", "EROFS"),
            libc::EEXIST => ("already_exists", "EEXIST"),
            libc::ENOTEMPTY => ("failed_precondition", "ENOTEMPTY"),
            libc::EBUSY => ("failed_precondition", "EBUSY"),
            libc::EADDRINUSE => ("failed_precondition", "EADDRINUSE"),
            libc::ETXTBSY => ("failed_precondition", "ETXTBSY"),
            libc::EINVAL => ("invalid_argument", "EINVAL"),
            libc::ENOTDIR => ("invalid_argument", "ENOTDIR"),
            libc::EISDIR => ("invalid_argument", "EISDIR"),
            libc::ELOOP => ("invalid_argument", "ELOOP"),
            libc::ENAMETOOLONG => ("invalid_argument", "ENAMETOOLONG"),
            libc::EXDEV => ("invalid_argument", "EXDEV"),
            libc::E2BIG => ("invalid_argument", "E2BIG"),
            libc::ENOEXEC => ("invalid_argument", "ENOEXEC"),
            libc::ENOSPC => ("resource_exhausted", "ENOSPC"),
            libc::EDQUOT => ("resource_exhausted", "EDQUOT"),
            libc::EMFILE => ("resource_exhausted", "EMFILE"),
            libc::ENFILE => ("resource_exhausted", "ENFILE"),
            libc::ENOMEM => ("resource_exhausted", "ENOMEM"),
            libc::EAGAIN => ("resource_exhausted", "EAGAIN"),
            libc::EFBIG => ("resource_exhausted", "EFBIG"),
            libc::ENOTSUP => ("unsupported", "ENOTSUP"),
            libc::ENOSYS => ("unsupported", "ENOSYS"),
            libc::ECONNREFUSED => ("unavailable", "ECONNREFUSED"),
            libc::EIO => ("internal", "EIO"),
            _ => ("internal", ""),
        };
        let name = if name.is_empty() { format!("E{errno}") } else { name.to_owned() };
        let text = std::io::Error::from_raw_os_error(errno).to_string();
        // The message has the meaning; the number is the library's own addition.
        let meaning = text.split(" (os error").next().unwrap_or_default();
        Failure::new(code, format!("Cannot {doing}: {meaning}")).with("errno", Value::Text(name))
    }

    /// The payload of the RESET frame.
    pub fn to_value(&self) -> Value {
        let mut entries = vec![
            ("code".to_owned(), self.code.into()),
            ("message".to_owned(), Value::Text(self.message.clone())),
        ];
        if !self.details.is_empty() {
            entries.push(("details".to_owned(), Value::Map(self.details.clone())));
        }
        Value::Map(entries)
    }
}
