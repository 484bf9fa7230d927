//! What an `exec` asks for, checked.

use std::path::Path;
use std::sync::OnceLock;

use crate::failure::Failure;
use crate::users::{self, Identity};
use crate::value::Value;

use super::output_log::Overflow;

const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const DEFAULT_KEEP: i64 = 1 << 20;

/// What to run.
#[derive(Debug)]
pub enum Program {
    /// A program and its arguments.
    Argv(Vec<Vec<u8>>),
    /// Text for a shell.
    Shell(Vec<u8>),
}

/// A checked `exec` request.
#[derive(Debug)]
pub struct ExecRequest {
    /// Chosen by the server.
    pub id: String,
    /// What to run.
    pub program: Program,
    /// `NAME=value`, complete.
    pub env: Vec<Vec<u8>>,
    /// Where candidates for a bare name are looked up.
    pub path: Vec<u8>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Who runs it.
    pub user: Identity,
    /// Standard input is a pipe from the server.
    pub stdin: bool,
    /// Columns and rows of the terminal.
    pub pty: Option<(u16, u16)>,
    /// After which everything is killed.
    pub timeout_ms: Option<u64>,
    /// Bytes of output to keep.
    pub keep: u64,
    /// When they are not enough.
    pub overflow: Overflow,
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new("invalid_argument", message)
}

/// The `id` of a request.
pub fn id(request: &Value) -> Result<&str, Failure> {
    let id = request.text("id").unwrap_or_default();
    let valid = (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if valid { Ok(id) } else { Err(invalid("A command's id is 1 to 128 of A-Z a-z 0-9 _ . -")) }
}

/// The size of a terminal in a map with `cols` and `rows`.
pub fn size(map: &Value) -> Result<(u16, u16), Failure> {
    let side = |key| map.int(key).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    match (side("cols"), side("rows")) {
        (Some(cols), Some(rows)) => Ok((cols, rows)),
        _ => Err(invalid("A terminal needs cols and rows from 1 to 65535")),
    }
}

fn c_bytes(value: &Value, what: &str) -> Result<Vec<u8>, Failure> {
    match value.as_bytes() {
        Some(bytes) if !bytes.contains(&0) => Ok(bytes.to_vec()),
        Some(_) => Err(invalid(format!("A NUL byte cannot be in {what}"))),
        None => Err(invalid(format!("Only text or bytes can be {what}"))),
    }
}

/// UTF-8 without a country, where the image has it: a language that is not there makes programs complain.
///
/// It is for `LC_CTYPE` and not for `LANG`. In all else this language is the same as none, but programs would
/// open twelve more files for it, which costs a shell under gVisor a fifth of its time.
fn characters() -> Option<&'static [u8]> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        ["/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8"].iter().any(|path| Path::new(path).exists())
    });
    found.then_some(b"C.UTF-8")
}

/// Checks an `exec` request and looks its user up.
pub fn exec(request: &Value) -> Result<ExecRequest, Failure> {
    let id = id(request)?.to_owned();
    let program = match (request.get("argv"), request.get("shell")) {
        (Some(Value::Array(items)), None | Some(Value::Null)) if !items.is_empty() => {
            Program::Argv(items.iter().map(|item| c_bytes(item, "an argument")).collect::<Result<_, _>>()?)
        }
        (None | Some(Value::Null), Some(text)) => Program::Shell(c_bytes(text, "a shell command")?),
        _ => return Err(invalid("A command needs either argv, an array that is not empty, or shell")),
    };
    let user = users::lookup(request.text("user").unwrap_or("root"))?;
    let pty = match request.get("pty") {
        None | Some(Value::Null) => None,
        Some(map) => Some(size(map)?),
    };
    let mut env = Vec::new();
    let mut names: Vec<&[u8]> = Vec::new();
    let mut path = DEFAULT_PATH.to_vec();
    match request.get("env") {
        None | Some(Value::Null) => {}
        Some(Value::Map(entries)) => {
            for (name, value) in entries {
                if name.is_empty() || name.contains(['=', '\0']) {
                    return Err(invalid(format!(
                        "\"{}\" cannot be the name of a variable",
                        name.escape_default()
                    )));
                }
                let value = c_bytes(value, "a variable")?;
                if name == "PATH" {
                    path = value.clone();
                }
                env.push([name.as_bytes(), b"=", &value].concat());
                names.push(name.as_bytes());
            }
        }
        Some(_) => return Err(invalid("env is a map")),
    }
    let speaks = names.iter().any(|name| [&b"LANG"[..], b"LC_ALL"].contains(name));
    let term = if pty.is_some() { Some(&b"xterm-256color"[..]) } else { None };
    let defaults = [
        ("PATH", Some(DEFAULT_PATH)),
        ("HOME", Some(&user.home[..])),
        ("USER", Some(&user.name[..])),
        ("LOGNAME", Some(&user.name[..])),
        ("SHELL", Some(&user.shell[..])),
        ("LC_CTYPE", characters().filter(|_| !speaks)),
        ("TERM", term),
    ];
    for (name, value) in defaults {
        if let Some(value) = value.filter(|_| !names.contains(&name.as_bytes())) {
            env.push([name.as_bytes(), b"=", value].concat());
        }
    }
    let cwd = match request.get("cwd") {
        None | Some(Value::Null) => b"/".to_vec(),
        Some(value) => c_bytes(value, "a working directory")?,
    };
    Ok(ExecRequest {
        id,
        program,
        env,
        path,
        cwd,
        user,
        stdin: request.flag("stdin"),
        pty,
        timeout_ms: request.int("timeoutMs").filter(|ms| *ms > 0).map(|ms| ms as u64),
        keep: request.int("keep").unwrap_or(DEFAULT_KEEP).max(0) as u64,
        overflow: if request.text("overflow") == Some("drop") { Overflow::Drop } else { Overflow::Wait },
    })
}
