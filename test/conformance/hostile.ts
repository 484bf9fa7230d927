import type { SandboxId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { all } from './box.ts';
import { rejects, type Suite } from './suite.ts';

/** Strings that are no sandbox ids, whatever a caller says that they are. */
const HOSTILE_IDS = [
  '..',
  '.',
  '',
  '/',
  'a/b',
  '../../etc',
  'sbx_',
  'sbx_..',
  'sbx_../../../../../../etc',
  'sbx_aaaaaaaaaaaaaaaaaaa/',
  'sbx_aaaaaaaaaaaaaaaaaaa\u0000',
  'sbx_aaaaaaaaaaaaaaaaaaaa\n',
  'sbx_AAAAAAAAAAAAAAAAAAAA',
  'sbx_aaaaaaaaaaaaaaaaaaaaa',
  'cmd_aaaaaaaaaaaaaaaaaaaa',
  'sbx_aaaaaaaaaaaaaaaaaaa ',
  '-rf',
  `sbx_${'a'.repeat(10_240)}`,
  'sbx_ａaaaaaaaaaaaaaaaaaaa',
] as SandboxId[];

export function hostileCases(suite: Suite): void {
  suite.share();

  suite.case('a hostile id is invalid_argument to ensure(), and nothing is made', [], async () => {
    const before = await suite.backend.list();
    const left = await suite.platform.leftovers?.();
    for (const id of HOSTILE_IDS) await rejects(suite.backend.ensure(id, suite.spec()), 'invalid_argument');
    expect(await suite.backend.list()).toEqual(before);
    expect(await suite.platform.leftovers?.()).toEqual(left);
  });

  suite.case('a hostile id is invalid_argument to every other verb', [], async () => {
    for (const id of HOSTILE_IDS) {
      await rejects(suite.backend.observe(id), 'invalid_argument');
      await rejects(suite.backend.connect(id), 'invalid_argument');
      await rejects(suite.backend.stats(id), 'invalid_argument');
      await rejects(suite.backend.stop(id), 'invalid_argument');
      await rejects(suite.backend.remove(id), 'invalid_argument');
    }
  });

  suite.case('a long hostile id is not repeated at length in the message', [], async () => {
    const error = await rejects(
      suite.backend.observe(`sbx_${'a'.repeat(10_240)}` as SandboxId),
      'invalid_argument',
    );
    expect(error.message.length).toBeLessThan(1000);
  });

  suite.inBox('a hostile command id is invalid_argument', [], async (box) => {
    for (const id of ['', '../x', 'a/b', 'x'.repeat(129), 'nul\u0000', 'new\nline', 'ünïcödé', 'a b']) {
      await rejects(box.start(['true'], { id }), 'invalid_argument');
    }
  });

  suite.inBox('a NUL in argv, env, shell or workdir is invalid_argument', [], async (box) => {
    await rejects(box.start(['echo', 'a\u0000b']), 'invalid_argument');
    await rejects(box.start('echo a\u0000b'), 'invalid_argument');
    await rejects(box.start(['true'], { env: { A: 'a\u0000b' } }), 'invalid_argument');
    await rejects(box.start(['true'], { workdir: '/tmp\u0000/x' }), 'invalid_argument');
  });

  suite.inBox('an env name with "=" and an empty argv are invalid_argument', [], async (box) => {
    await rejects(box.start(['true'], { env: { 'A=B': 'x' } }), 'invalid_argument');
    await rejects(box.start([]), 'invalid_argument');
  });

  suite.inBox('a relative path is invalid_argument to every verb of files', [], async (box) => {
    for (const path of ['', 'relative', './x', '../x']) {
      await rejects(box.files.stat(path), 'invalid_argument');
      await rejects(box.files.read(path), 'invalid_argument');
      await rejects(box.files.write(path, Buffer.from('x')), 'invalid_argument');
      await rejects(box.files.mkdir(path), 'invalid_argument');
      await rejects(box.files.remove(path), 'invalid_argument');
      await rejects(all(box.files.list(path)), 'invalid_argument');
    }
  });

  suite.inBox('a NUL in a path is invalid_argument', [], async (box) => {
    const path = `${box.dir}/a\u0000b`;
    await rejects(box.files.stat(path), 'invalid_argument');
    await rejects(box.files.write(path, Buffer.from('x')), 'invalid_argument');
    await rejects(box.files.mkdir(path), 'invalid_argument');
    expect(await all(box.files.list(box.dir))).toEqual([]);
  });

  suite.inBox('".." in a path leads no further than the sandbox\'s own root', [], async (box) => {
    const up = `${box.dir}${'/..'.repeat(40)}`;
    expect((await box.files.stat(`${up}/tmp`)).type).toBe('directory');
    await box.files.symlink(`${box.dir}/up`, `..${'/..'.repeat(40)}/tmp`);
    expect((await box.files.stat(`${box.dir}/up`, { follow: true })).type).toBe('directory');
  });

  suite.inBox('a big argument and a big environment arrive whole', [], async (box) => {
    const big = 'x'.repeat(100_000);
    expect((await box.run(['printf', '%s', big])).stdout).toBe(big);
    const env = Object.fromEntries(
      Array.from({ length: 500 }, (_, at) => [`NAME_${at}`, `${at}`.repeat(20)]),
    );
    const seen = (await box.run(['env'], { env })).stdout
      .split('\n')
      .filter((line) => line.startsWith('NAME_'));
    expect(seen).toHaveLength(500);
  });

  suite.inBox('a negative or fractional range is invalid_argument', [], async (box) => {
    const path = await box.write('file', 'content');
    for (const range of [{ offset: -1 }, { length: -1 }, { offset: 0.5 }])
      await rejects(box.files.read(path, range), 'invalid_argument');
  });

  suite.inBox('escape sequences and broken UTF-8 in output stay bytes', [], async (box) => {
    const bytes = Buffer.from([0x1b, 0x5b, 0x32, 0x4a, 0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0d, 0x0a]);
    await box.write('bytes', bytes);
    expect((await box.run(['cat', 'bytes'])).bytes.equals(bytes)).toBe(true);
  });
}
