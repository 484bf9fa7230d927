//! What the tests of tools share.

use std::os::fd::{IntoRawFd, RawFd};

use crate::task::Stopped;
use crate::value::Value;

pub use crate::files::test_stream::{Scratch, TestStream, as_user};

/// The eventfd of a stream that stays.
pub fn never_gone() -> RawFd {
    // SAFETY: a new descriptor, which lives as long as the tests.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into_raw_fd()
}

/// A request with the scratch directory as its working directory.
pub fn request<const N: usize>(name: &str, scratch: &Scratch, entries: [(&str, Value); N]) -> Value {
    let mut all = vec![("name".to_owned(), Value::from(name)), ("cwd".to_owned(), scratch.path(""))];
    all.extend(entries.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(all)
}

/// Runs a tool that must succeed.
pub fn tool<const N: usize>(name: &str, scratch: &Scratch, entries: [(&str, Value); N]) -> TestStream {
    let mut stream = TestStream::new();
    let request = request(name, scratch, entries);
    if let Err(stopped) = super::run(&request, &mut stream) {
        panic!("{request:?}: {stopped:?}");
    }
    stream
}

/// Runs a tool that must fail; the failure's code and message.
pub fn fails<const N: usize>(
    name: &str,
    scratch: &Scratch,
    entries: [(&str, Value); N],
) -> (&'static str, String) {
    match super::run(&request(name, scratch, entries), &mut TestStream::new()) {
        Err(Stopped::Failed(failure)) => (failure.code, failure.message),
        other => panic!("{other:?}"),
    }
}

/// The text of an answer.
pub fn text(stream: &TestStream) -> String {
    String::from_utf8_lossy(&stream.data).into_owned()
}
