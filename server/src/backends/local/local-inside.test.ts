/** What programs in a sandbox see of its limits. */
import { SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();
const MiB = 1024 * 1024;
const TOTAL_KIB = "awk '/^MemTotal/ { print $2 }' /proc/meminfo";

describe.skipIf(reason !== undefined)(`limits inside${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let world: LocalWorld;
  afterEach(() => world.destroy());

  it('runsc: the size of the machine is the memory limit, and the kernel’s limit lies above it', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const of = (memoryBytes: number) =>
      SandboxSpecSchema.parse({ runtime: 'runsc', limits: { memoryBytes: memoryBytes * MiB } });
    const id = await world.box(backend, of(512));
    expect(Number(await world.run(backend, id, TOTAL_KIB))).toBe(512 * 1024);
    // All of the limit can be used: what gVisor needs for itself comes on top.
    const fill = `python3 -c "b = bytearray(400 << 20); print(sum(b[::4096]))"`;
    expect(await world.run(backend, id, fill)).toBe('0');
    // Too little to start gVisor in.
    const small = await world.box(backend, of(32));
    expect(Number(await world.run(backend, small, TOTAL_KIB))).toBeGreaterThan(32 * 1024);
  }, 60_000);

  for (const runtime of ['runsc', 'runc']) {
    it(`${runtime}: a command has the user's shell and a UTF-8 locale`, async () => {
      world = await localWorld({ runtime });
      const backend = await world.open();
      const id = await world.box(backend);
      expect(await world.run(backend, id, 'echo $SHELL $LC_CTYPE')).toBe('/bin/bash C.UTF-8');
      expect(await world.run(backend, id, 'locale charmap')).toBe('UTF-8');
    }, 60_000);
  }
});
