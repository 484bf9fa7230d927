"""What calls of programs do in a mount of a bucket. Runs inside a sandbox; prints what is not as the guide says."""
import errno
import mmap
import os
import time

os.chdir("/mnt/data")
wrong = []


def expect(what, found, wanted):
    if found != wanted:
        wrong.append(f"{what}: {found!r} in place of {wanted!r}")


def fails(what, number, work):
    try:
        work()
        wrong.append(f"{what}: it succeeded in place of {errno.errorcode[number]}")
    except OSError as error:
        expect(what, errno.errorcode[error.errno], errno.errorcode[number])


def write(path, content, mode="wb"):
    with open(path, mode) as file:
        file.write(content)


def read(path):
    with open(path, "rb") as file:
        return file.read()


# Overwriting, appending, truncating, holes.
write("a", b"0123456789")
with open("a", "r+b") as file:
    file.seek(3)
    file.write(b"abc")
expect("a change in the middle", read("a"), b"012abc6789")
write("a", b"+end", "ab")
expect("append", read("a"), b"012abc6789+end")
os.truncate("a", 4)
expect("a shorter file", read("a"), b"012a")
os.truncate("a", 8)
expect("a longer file", read("a"), b"012a\0\0\0\0")
descriptor = os.open("a", os.O_RDWR)
os.pwrite(descriptor, b"far", 5_000_000)
expect("size with a hole", os.fstat(descriptor).st_size, 5_000_003)
os.fsync(descriptor)
os.ftruncate(descriptor, 2)
os.close(descriptor)
expect("after ftruncate", read("a"), b"01")
write("a", b"new")
expect("replaced", read("a"), b"new")

# Two who have it open see the same; one appends while the other reads.
one, other = os.open("both", os.O_RDWR | os.O_CREAT), os.open("both", os.O_RDWR)
os.write(one, b"first ")
expect("what another descriptor reads", os.pread(other, 100, 0), b"first ")
os.lseek(other, 0, os.SEEK_END)
os.write(other, b"second")
os.close(one)
os.close(other)
expect("both", read("both"), b"first second")

# Names.
fails("O_EXCL of what is there", errno.EEXIST, lambda: os.close(os.open("a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
write("b", b"b")
os.rename("b", "a")
expect("a rename over a file", (read("a"), os.path.exists("b")), (b"b", False))
os.makedirs("d/e")
write("d/e/f", b"f")
fails("rmdir of a full one", errno.ENOTEMPTY, lambda: os.rmdir("d/e"))
fails("rename of a file over a directory", errno.EISDIR, lambda: os.rename("a", "d"))
fails("rename of a directory over a file", errno.ENOTDIR, lambda: os.rename("d", "a"))
os.rename("d", "moved")
expect("a moved directory", read("moved/e/f"), b"f")
fails("a directory into itself", errno.EINVAL, lambda: os.rename("moved", "moved/e/x"))
os.remove("moved/e/f")
expect("an empty directory stays", os.listdir("moved"), ["e"])
os.rmdir("moved/e")
os.rmdir("moved")
fails("a name that is gone", errno.ENOENT, lambda: os.stat("moved"))
fails("a long name", errno.ENAMETOOLONG, lambda: write("n" * 256, b""))

# A file that is removed while it is open.
write("open", b"before")
file = open("open", "r+b", buffering=0)
file.write(b"B")
os.remove("open")
expect("a removed file that is open", os.pread(file.fileno(), 10, 0), b"Before")
file.close()
expect("it is gone", os.path.exists("open"), False)

# A file that was written while it was renamed.
file = open("old", "wb", buffering=0)
file.write(b"one ")
os.rename("old", "renamed")
file.write(b"two")
file.close()
expect("a file renamed while it was written", read("renamed"), b"one two")

# What a bucket has none of.
for what, work in {
    "symlink": lambda: os.symlink("a", "s"),
    "link": lambda: os.link("a", "l"),
    "chmod": lambda: os.chmod("a", 0o700),
    "mkfifo": lambda: os.mkfifo("p"),
}.items():
    try:
        work()
        wrong.append(f"{what}: it succeeded")
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS):
            wrong.append(f"{what}: {errno.errorcode[error.errno]}")
os.chmod("a", 0o644)
os.utime("a", (1, 1))

# Memory that is shared with a file.
write("mapped", b"." * 8192)
with open("mapped", "r+b") as file:
    with mmap.mmap(file.fileno(), 8192) as area:
        area[5000:5004] = b"mmap"
        area.flush()
expect("mmap", read("mapped")[4999:5005], b".mmap.")

# Many entries.
expect("entries of a large directory", len(os.listdir("many")), 1500)
expect("one of a large directory", read("many/1499"), b"x")
expect("walked", sum(len(files) for _, _, files in os.walk("many")), 1500)

os.mkdir("made")
write("made/last", b"last")
print("\n".join(wrong) or "as the guide says", flush=True)
