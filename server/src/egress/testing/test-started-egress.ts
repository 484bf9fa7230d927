/** An egress for a whole server in tests: loopback stands for the internet, and names are those of a map. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sealedBox } from '../../lib/sealed-box.ts';
import { type StartedEgress, startEgress, type StartEgressOptions } from '../start-egress.ts';
import { testClassify } from './program.ts';

export interface TestStartedEgress extends StartedEgress, Disposable {
  readonly names: Map<string, string[]>;
}

export async function testStartedEgress(
  options: Partial<StartEgressOptions> = {},
): Promise<TestStartedEgress> {
  const directory = mkdtempSync(join(tmpdir(), 'cay-egress-'));
  const names = new Map<string, string[]>();
  const started = await startEgress({
    authorityFile: join(directory, 'authority'),
    box: sealedBox(Buffer.alloc(32, 7)),
    classify: testClassify,
    resolver: {
      async resolve(name) {
        const addresses = names.get(name);
        if (!addresses) throw new Error('no such name');
        return addresses;
      },
    },
    ...options,
  });
  return {
    ...started,
    names,
    [Symbol.dispose]() {
      started.engine.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
