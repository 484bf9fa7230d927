/** One large file in and out. */
import { create, RUNTIMES, wipe, type Bench } from './bench.ts';

const SIZE = 1_000_000_000;
const CHUNK = Buffer.alloc(256 * 1024, 0x5a);

export async function benchFiles({ report, open }: Bench): Promise<void> {
  const backend = await open();
  try {
    for (const runtime of RUNTIMES) {
      const { id, guest } = await create(backend, { runtime });
      const files = guest.files('user');
      const aim = runtime === 'runc' ? ({ value: 300, better: 'more' } as const) : undefined;

      let start = performance.now();
      await files.write('/home/user/large', content());
      report.add({
        what: `1 GB file in, ${runtime}`,
        value: SIZE / 1e3 / (performance.now() - start),
        unit: 'MB/s',
        aim,
      });

      start = performance.now();
      let received = 0;
      for await (const chunk of (await files.read('/home/user/large')).data) received += chunk.length;
      if (received !== SIZE) throw new Error(`read ${received} bytes of ${SIZE}`);
      report.add({
        what: `1 GB file out, ${runtime}`,
        value: SIZE / 1e3 / (performance.now() - start),
        unit: 'MB/s',
        aim,
      });
      await backend.remove(id);
    }
  } finally {
    await wipe(backend);
  }
}

async function* content(): AsyncGenerator<Uint8Array> {
  for (let left = SIZE; left > 0; left -= CHUNK.length)
    yield left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK;
}
