/**
 * Agent tools that need no process, beside a command that does nothing, and `grep` and `glob` beside ripgrep
 * in the same sandbox. CAY_BENCH_RG names the program, where it is not in /usr/bin.
 */
import { existsSync, readFileSync } from 'node:fs';
import type { CborMap } from '../server/src/guest/cbor.ts';
import { create, exec, RUNTIMES, wipe, type Bench } from './bench.ts';
import { measure } from './measure.ts';

const RG = process.env['CAY_BENCH_RG'] ?? '/usr/bin/rg';
const DIRECTORIES = 500;
const FILES = 100;
const SEARCHED = '/home/user/tree';

const MAKE_TREE = `
import os
for d in range(${DIRECTORIES}):
    path = f'${SEARCHED}/d{d % 20}/e{d}'
    os.makedirs(path)
    for f in range(${FILES}):
        with open(f'{path}/file{f}.txt', 'w') as out:
            out.write('some words of no interest\\n' * 40)
            if f == 7: out.write('the needle is here\\n')
`;

export async function benchTools({ report, open }: Bench): Promise<void> {
  const backend = await open();
  try {
    for (const runtime of RUNTIMES) {
      const { guest } = await create(backend, { runtime });
      const files = guest.files('user');
      const tool = (request: CborMap & { name: string }) =>
        guest.tool('user', { cwd: '/home/user', timeoutMs: 60_000, ...request }).then(() => {});
      await files.write('/home/user/small/a.txt', Buffer.from('one\ntwo\nthree\n'));
      await exec(guest, 'python3', '-c', MAKE_TREE);
      const idle = await measure(200, () => exec(guest, 'true'), { warmUp: 20 });
      report.add({ what: `exec true, ${runtime}`, value: idle.p50, p99: idle.p99, unit: 'ms' });
      let flip = 0;
      const patch = (from: string, to: string) =>
        `*** Begin Patch\n*** Update File: small/a.txt\n@@\n-${from}\n+${to}\n*** End Patch`;
      const small: Record<string, () => Promise<void>> = {
        read: () => tool({ name: 'read', path: 'small/a.txt' }),
        list: () => tool({ name: 'list', path: 'small' }),
        glob: () => tool({ name: 'glob', path: 'small', pattern: '**' }),
        grep: () => tool({ name: 'grep', path: 'small', pattern: 'two' }),
        edit: () => {
          const [from, to] = flip++ % 2 === 0 ? ['one', '1'] : ['1', 'one'];
          return tool({ name: 'edit', path: 'small/a.txt', old: from, new: to });
        },
        apply_patch: () => {
          const [from, to] = flip++ % 2 === 0 ? ['three', '3'] : ['3', 'three'];
          return tool({ name: 'apply_patch', patch: patch(from!, to!) });
        },
      };
      for (const [name, call] of Object.entries(small)) {
        flip = 0;
        const { p50, p99 } = await measure(200, call, { warmUp: 20 });
        const aim = { value: runtime === 'runc' ? 2 * idle.p50 : 1, better: 'less' as const };
        report.add({ what: `tool ${name}, ${runtime}`, value: p50, p99, unit: 'ms', aim });
      }
      const count = DIRECTORIES * FILES;
      const grep = await measure(7, () => tool({ name: 'grep', path: SEARCHED, pattern: 'needle' }));
      const glob = await measure(7, () => tool({ name: 'glob', path: SEARCHED, pattern: '**/file9?.txt' }));
      report.add({ what: `grep of ${count} files, ${runtime}`, value: grep.p50, p99: grep.p99, unit: 'ms' });
      report.add({ what: `glob of ${count} files, ${runtime}`, value: glob.p50, p99: glob.p99, unit: 'ms' });
      if (!existsSync(RG)) {
        report.add({ what: `  … of rg: there is no ${RG}`, value: Number.NaN, unit: 'x' });
        continue;
      }
      await files.write('/home/user/rg', readFileSync(RG), { mode: 0o755 });
      const limit = { value: runtime === 'runc' ? 1.3 : 1, better: 'less' as const };
      const rgGrep = await measure(7, () =>
        exec(guest, '/home/user/rg', '-l', '--hidden', 'needle', SEARCHED),
      );
      report.add({ what: `  … of rg -l, ${runtime}`, value: grep.p50 / rgGrep.p50, unit: 'x', aim: limit });
      const rgGlob = await measure(7, () =>
        exec(guest, '/home/user/rg', '--files', '--hidden', '-g', '**/file9?.txt', SEARCHED),
      );
      report.add({
        what: `  … of rg --files, ${runtime}`,
        value: glob.p50 / rgGlob.p50,
        unit: 'x',
        aim: limit,
      });
    }
  } finally {
    await wipe(backend);
  }
}
