import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { all, inPieces, noise, until } from './box.ts';
import { rejects, type Suite } from './suite.ts';

const MiB = 1024 * 1024;

export function fileWriteCases(suite: Suite): void {
  suite.share();

  suite.inBox('write() makes missing parents and tells what was written', [], async (box) => {
    const path = `${box.dir}/a/b/c/file`;
    const info = await box.files.write(path, Buffer.from('deep'));
    expect(info).toMatchObject({ path, name: 'file', type: 'file', sizeBytes: 4 });
    expect((await box.read(path)).toString()).toBe('deep');
  });

  suite.inBox('write() takes a stream', [], async (box) => {
    const bytes = noise(MiB, 4);
    await box.files.write(`${box.dir}/file`, inPieces(bytes, 10_007));
    expect((await box.read('file')).equals(bytes)).toBe(true);
  });

  suite.inBox('100 MB are streamed in and out unchanged', [], async (box) => {
    const piece = noise(MiB, 9);
    const sent = createHash('sha256');
    async function* pieces() {
      for (let at = 0; at < 100; at++) {
        piece.writeUInt32LE(at, 0);
        sent.update(piece);
        yield Buffer.from(piece);
      }
    }
    const info = await box.files.write(`${box.dir}/big`, pieces());
    expect(info.sizeBytes).toBe(100 * MiB);
    const got = createHash('sha256');
    for await (const part of (await box.files.read(`${box.dir}/big`)).data) got.update(part);
    expect(got.digest('hex')).toBe(sent.digest('hex'));
    await box.files.remove(`${box.dir}/big`);
  });

  suite.inBox('write() replaces what was there, also by something shorter', [], async (box) => {
    await box.write('file', 'a long first content');
    await box.write('file', 'short');
    expect((await box.read('file')).toString()).toBe('short');
    expect(await all(box.files.list(box.dir))).toHaveLength(1);
  });

  suite.inBox('a reader sees the old content or the new, never a mix', [], async (box) => {
    const contents = ['a', 'b'].map((letter) => Buffer.alloc(512 * 1024, letter));
    await box.write('file', contents[0]!);
    let writing = true;
    const writer = (async () => {
      for (let round = 0; round < 20; round++)
        await box.files.write(`${box.dir}/file`, inPieces(contents[round % 2]!, 65_536));
      writing = false;
    })();
    let reads = 0;
    while (writing || reads < 3) {
      const seen = await box.read('file');
      expect(contents.some((content) => content.equals(seen))).toBe(true);
      reads++;
    }
    await writer;
  });

  suite.inBox('a write that fails midway leaves the old content and nothing else', [], async (box) => {
    await box.write('file', 'old');
    async function* failing() {
      yield Buffer.alloc(300_000, 'x');
      throw new Error('the sender broke');
    }
    await expect(box.files.write(`${box.dir}/file`, failing())).rejects.toThrow();
    await expect(box.files.write(`${box.dir}/new`, failing())).rejects.toThrow();
    // The temporary file goes when the guest hears of it, which may be a moment later.
    await until('only the old file is left', async () => (await all(box.files.list(box.dir))).length === 1);
    expect((await box.read('file')).toString()).toBe('old');
  });

  suite.inBox('a write that is aborted leaves nothing', [], async (box) => {
    const aborter = new AbortController();
    async function* slow() {
      yield Buffer.alloc(1000);
      aborter.abort();
      yield Buffer.alloc(1000);
      await new Promise((resolve) => setTimeout(resolve, 50));
      yield Buffer.alloc(1000);
    }
    await expect(box.files.write(`${box.dir}/file`, slow(), { signal: aborter.signal })).rejects.toThrow();
    await until('nothing is left', async () => (await all(box.files.list(box.dir))).length === 0);
  });

  suite.inBox('exclusive rejects already_exists, and keeps what is there', [], async (box) => {
    await box.files.write(`${box.dir}/file`, Buffer.from('first'), { exclusive: true });
    await rejects(
      box.files.write(`${box.dir}/file`, Buffer.from('second'), { exclusive: true }),
      'already_exists',
    );
    expect((await box.read('file')).toString()).toBe('first');
  });

  suite.inBox('of many exclusive writers one wins', [], async (box) => {
    const writers = Array.from({ length: 10 }, (_, at) =>
      box.files.write(`${box.dir}/file`, Buffer.from(`${at}`), { exclusive: true }),
    );
    const results = await Promise.allSettled(writers);
    const winner = results.findIndex(({ status }) => status === 'fulfilled');
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect((await box.read('file')).toString()).toBe(`${winner}`);
    expect(await all(box.files.list(box.dir))).toHaveLength(1);
  });

  suite.inBox('append adds to the end, and makes the file if need be', [], async (box) => {
    await box.files.write(`${box.dir}/log`, Buffer.from('one\n'), { append: true });
    await box.files.write(`${box.dir}/log`, Buffer.from('two\n'), { append: true });
    expect((await box.read('log')).toString()).toBe('one\ntwo\n');
  });

  suite.inBox('write() sets the mode that was asked for', [], async (box) => {
    const info = await box.files.write(`${box.dir}/tool`, Buffer.from('#!/bin/sh\n'), { mode: 0o750 });
    expect(info.mode).toBe(0o750);
    expect((await box.files.stat(`${box.dir}/tool`)).mode).toBe(0o750);
  });

  suite.inBox('write() over an executable keeps its mode', [], async (box) => {
    await box.files.write(`${box.dir}/tool`, Buffer.from('old'), { mode: 0o755 });
    await box.write('tool', 'new');
    expect((await box.files.stat(`${box.dir}/tool`)).mode).toBe(0o755);
  });

  suite.inBox('write() through a symlink writes its target and keeps the link', [], async (box) => {
    await box.write('target', 'old');
    await box.files.symlink(`${box.dir}/link`, 'target');
    await box.write('link', 'new');
    expect((await box.files.stat(`${box.dir}/link`, { follow: false })).type).toBe('symlink');
    expect((await box.read('target')).toString()).toBe('new');
  });

  suite.inBox('write() onto a directory is invalid_argument', [], async (box) => {
    await box.files.mkdir(`${box.dir}/sub`);
    await rejects(box.files.write(`${box.dir}/sub`, Buffer.from('x')), 'invalid_argument');
    expect((await box.files.stat(`${box.dir}/sub`)).type).toBe('directory');
  });

  suite.inBox('mkdir() makes parents, and tells whether it made the directory', [], async (box) => {
    expect(await box.files.mkdir(`${box.dir}/a/b/c`)).toBe(true);
    expect(await box.files.mkdir(`${box.dir}/a/b/c`)).toBe(false);
    expect(await box.files.mkdir(`${box.dir}/private`, { mode: 0o700 })).toBe(true);
    expect((await box.files.stat(`${box.dir}/private`)).mode).toBe(0o700);
  });

  suite.inBox('mkdir() where a file is, is already_exists', [], async (box) => {
    const path = await box.write('file', '');
    await rejects(box.files.mkdir(path), 'already_exists');
  });

  suite.inBox('move() renames a file and a whole tree', [], async (box) => {
    await box.write('old', 'content');
    await box.files.move(`${box.dir}/old`, `${box.dir}/new`);
    expect((await box.read('new')).toString()).toBe('content');
    await rejects(box.files.stat(`${box.dir}/old`), 'not_found');
    await box.write('tree/a/b', 'leaf');
    await box.files.move(`${box.dir}/tree`, `${box.dir}/moved`);
    expect((await box.read('moved/a/b')).toString()).toBe('leaf');
  });

  suite.inBox('move() rejects already_exists unless told to overwrite', [], async (box) => {
    await box.write('from', 'new');
    await box.write('to', 'old');
    await rejects(box.files.move(`${box.dir}/from`, `${box.dir}/to`), 'already_exists');
    expect((await box.read('to')).toString()).toBe('old');
    await box.files.move(`${box.dir}/from`, `${box.dir}/to`, { overwrite: true });
    expect((await box.read('to')).toString()).toBe('new');
  });

  suite.inBox('move() of what is missing is not_found, and into itself invalid_argument', [], async (box) => {
    await rejects(box.files.move(`${box.dir}/missing`, `${box.dir}/to`), 'not_found');
    await box.files.mkdir(`${box.dir}/tree`);
    await rejects(box.files.move(`${box.dir}/tree`, `${box.dir}/tree/below`), 'invalid_argument');
  });

  suite.inBox('remove() takes a file, and a tree only when asked', [], async (box) => {
    await box.write('tree/a/b', '');
    await rejects(box.files.remove(`${box.dir}/tree`), 'failed_precondition');
    await box.files.remove(`${box.dir}/tree`, { recursive: true });
    await rejects(box.files.stat(`${box.dir}/tree`), 'not_found');
    await box.files.mkdir(`${box.dir}/empty`);
    await box.files.remove(`${box.dir}/empty`);
    await rejects(box.files.remove(`${box.dir}/empty`), 'not_found');
  });

  suite.inBox('remove() takes a symlink and never what it points to', [], async (box) => {
    await box.write('real/file', 'kept');
    await box.files.symlink(`${box.dir}/link`, 'real');
    await box.files.remove(`${box.dir}/link`, { recursive: true });
    expect((await box.read('real/file')).toString()).toBe('kept');
    await box.files.mkdir(`${box.dir}/tree`);
    await box.files.symlink(`${box.dir}/tree/link`, '../real');
    await box.files.remove(`${box.dir}/tree`, { recursive: true });
    expect((await box.read('real/file')).toString()).toBe('kept');
  });
}
