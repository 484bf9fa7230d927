import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import type { CommandHandle } from '../../server/src/guest/guest.ts';
import { drain, noise, until, within, type Box } from './box.ts';
import type { Suite } from './suite.ts';

const MiB = 1024 * 1024;
const sha256 = (data: Uint8Array) => createHash('sha256').update(data).digest('hex');

/** Reads until at least that much was taken, detaches, and gives what was read. */
async function readSome(handle: CommandHandle, atLeast: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap') throw new Error('Expected no gap');
    expect(chunk.offset).toBe(length);
    parts.push(chunk.data);
    length += chunk.data.length;
    if (length >= atLeast) break;
  }
  await handle[Symbol.asyncDispose]();
  return Buffer.concat(parts);
}

const infoOf = async (box: Box, id: string) => (await box.guest.commands()).find((each) => each.id === id)!;

export function outputCases(suite: Suite): void {
  suite.share();

  suite.inBox('stdout and stderr are told apart', [], async (box) => {
    const ran = await box.run('echo out; echo err 1>&2; echo out again');
    expect(ran).toMatchObject({ stdout: 'out\nout again\n', stderr: 'err\n' });
  });

  suite.inBox('stdout and stderr keep their order when written one after the other', [], async (box) => {
    const ran = await box.run('echo 1; sleep 0.1; echo 2 1>&2; sleep 0.1; echo 3; sleep 0.1; echo 4 1>&2');
    expect(ran.bytes.toString()).toBe('1\n2\n3\n4\n');
  });

  suite.inBox('offsets count the bytes of all output without a hole', [], async (box) => {
    const handle = await box.start('echo one; echo two 1>&2; echo three');
    let next = 0;
    for await (const chunk of handle.output) {
      expect(chunk.offset).toBe(next);
      next += chunk.channel === 'gap' ? chunk.bytes : chunk.data.length;
    }
    expect(next).toBe('one\ntwo\nthree\n'.length);
    expect((await infoOf(box, handle.id)).outputBytes).toBe(next);
  });

  suite.inBox('all 256 bytes pass, NUL included', [], async (box) => {
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, at) => at & 255));
    await box.write('bytes', bytes);
    expect((await box.run(['cat', 'bytes'])).bytes.equals(bytes)).toBe(true);
    expect((await box.run(['cat'], { stdin: bytes })).bytes.equals(bytes)).toBe(true);
  });

  suite.inBox('UTF-8 that is cut into pieces is whole again', [], async (box) => {
    const text = '→ grüße, 世界 🎉\n'.repeat(20_000);
    await box.write('text', text);
    expect((await box.run(['cat', 'text'])).stdout).toBe(text);
  });

  suite.inBox('a megabyte goes in and out unchanged', [], async (box) => {
    const bytes = noise(MiB);
    const ran = await box.run(['cat'], { stdin: bytes });
    expect(sha256(ran.bytes)).toBe(sha256(bytes));
  });

  suite.inBox('20 MB of output come out exactly', [], async (box) => {
    const bytes = noise(20 * MiB, 7);
    await box.write('big', bytes);
    const ran = await box.run(['cat', 'big']);
    expect(ran.bytes.length).toBe(bytes.length);
    expect(sha256(ran.bytes)).toBe(sha256(bytes));
  });

  suite.inBox('a slow reader does not hold up another command', [], async (box) => {
    const bytes = noise(5 * MiB, 3);
    await box.write('big', bytes);
    const slow = await box.start(['cat', 'big']);
    for (let round = 0; round < 5; round++) {
      expect((await within(10_000, 'another command', box.run('echo quick'))).stdout).toBe('quick\n');
    }
    expect((await drain(slow)).bytes.equals(bytes)).toBe(true);
  });

  suite.inBox(
    'a client that detaches and attaches again from the offset misses and repeats no byte',
    [],
    async (box) => {
      const bytes = noise(3 * MiB, 5);
      await box.write('big', bytes);
      const first = await box.start(['cat', 'big']);
      const parts = [await readSome(first, 300_000)];
      const second = await box.guest.attach(first.id, { offset: parts[0]!.length });
      for await (const chunk of second.output) {
        if (chunk.channel === 'gap') throw new Error('Expected no gap');
        parts.push(Buffer.from(chunk.data));
      }
      expect(sha256(Buffer.concat(parts))).toBe(sha256(bytes));
      expect(await second.ended).toEqual({ kind: 'exited', exitCode: 0 });
    },
  );

  suite.inBox('aborting the signal of exec() detaches, and the command goes on', [], async (box) => {
    const aborter = new AbortController();
    const request = {
      id: 'abort-me',
      shell: 'sleep 0.3; echo done > done',
      env: {},
      workdir: box.dir,
      user: 'user',
    };
    const handle = await box.guest.exec(request, { signal: aborter.signal });
    aborter.abort();
    await within(
      5000,
      'the reader to be let go',
      drain(handle).then(
        () => {},
        () => {},
      ),
    );
    await until('the command has done its work', () =>
      box.files.stat(`${box.dir}/done`).then(
        () => true,
        () => false,
      ),
    );
  });

  suite.inBox('with "wait" a command waits for its reader and nothing is lost', [], async (box) => {
    const bytes = noise(2 * MiB, 11);
    await box.write('big', bytes);
    const handle = await box.start(['cat', 'big'], { keepBytes: 65_536, overflow: 'wait' });
    await handle[Symbol.asyncDispose]();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const info = await infoOf(box, handle.id);
    expect(info.end).toBeUndefined();
    expect(info.outputBytes).toBeLessThan(bytes.length);
    expect(info.keptFrom).toBe(0);
    const ran = await drain(await box.guest.attach(handle.id, { offset: 0 }));
    expect(ran.gaps).toEqual([]);
    expect(ran.bytes.equals(bytes)).toBe(true);
    expect(ran.exitCode).toBe(0);
  });

  suite.inBox('with "drop" a command goes on, and the gap is told to the byte', [], async (box) => {
    const bytes = noise(MiB, 13);
    await box.write('big', bytes);
    const handle = await box.start(['cat', 'big'], { keepBytes: 65_536, overflow: 'drop' });
    await handle[Symbol.asyncDispose]();
    await until('the command has ended', async () => (await infoOf(box, handle.id)).end !== undefined);
    const { outputBytes, keptFrom } = await infoOf(box, handle.id);
    expect(outputBytes).toBe(bytes.length);
    expect(keptFrom).toBeGreaterThan(0);
    expect(outputBytes - keptFrom).toBeLessThanOrEqual(65_536);
    const ran = await drain(await box.guest.attach(handle.id, { offset: 0 }));
    expect(ran.gaps).toEqual([{ channel: 'gap', offset: 0, bytes: keptFrom }]);
    expect(ran.bytes.equals(bytes.subarray(keptFrom))).toBe(true);
  });

  suite.inBox('attach() in the middle of a gap reports only the rest of it', [], async (box) => {
    const bytes = noise(512 * 1024, 17);
    await box.write('big', bytes);
    const handle = await box.start(['cat', 'big'], { keepBytes: 16_384, overflow: 'drop' });
    await handle[Symbol.asyncDispose]();
    await until('the command has ended', async () => (await infoOf(box, handle.id)).end !== undefined);
    const { keptFrom } = await infoOf(box, handle.id);
    const ran = await drain(await box.guest.attach(handle.id, { offset: 1000 }));
    expect(ran.gaps).toEqual([{ channel: 'gap', offset: 1000, bytes: keptFrom - 1000 }]);
    const tail = await drain(await box.guest.attach(handle.id, { offset: bytes.length - 10 }));
    expect(tail.gaps).toEqual([]);
    expect(tail.bytes.equals(bytes.subarray(-10))).toBe(true);
  });

  suite.inBox('two readers of one command both get all of it', [], async (box) => {
    const first = await box.start('sleep 0.2; echo one; sleep 0.1; echo two');
    const second = await box.guest.attach(first.id, { offset: 0 });
    const [a, b] = await Promise.all([drain(first), drain(second)]);
    expect(a.stdout).toBe('one\ntwo\n');
    expect(b.stdout).toBe('one\ntwo\n');
    expect(b.end).toEqual(a.end);
  });

  suite.inBox('output without a newline comes before the end', [], async (box) => {
    const handle = await box.start('printf prompt; sleep 60');
    const [chunk] = [await within(5000, 'the prompt', handle.output[Symbol.asyncIterator]().next())];
    expect(Buffer.from((chunk.value as { data: Uint8Array }).data).toString()).toBe('prompt');
    await handle[Symbol.asyncDispose]();
    await box.guest.signal(handle.id, 'SIGKILL');
  });
}
