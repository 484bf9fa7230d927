import * as newest from 'e2b';
import * as older from 'e2b-2.45';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { commandsSuite } from './commands-suite.ts';
import { filesSuite } from './files-suite.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';
import { sandboxesSuite } from './sandboxes-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's clients on runc are not tested: ${why}`);

// On gVisor it does all of this.
onRunc('2.51', newest, why ?? whyLater());
// An older client of the same shape, as far as the suites use it.
onRunc('2.45', older as unknown as typeof newest, why);

function onRunc(version: string, client: typeof newest, reason: string | undefined): void {
  const title = `E2B's JavaScript client ${version} on runc`;
  if (reason === undefined) describe(title, () => clientSuite(client));
  else it.skip(`${title} (${reason})`, () => {});
}

function clientSuite(client: typeof newest): void {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await openE2bPlatform('runc');
  });
  afterAll(() => platform[Symbol.asyncDispose]());
  commandsSuite(client, () => platform);
  filesSuite(client, () => platform);
  sandboxesSuite(client, () => platform);

  it('does not pretend to keep memory', async () => {
    const sandbox = await client.Sandbox.create(platform.access);
    try {
      await expect(sandbox.pause()).rejects.toThrow(/^501: .*memory/);
      await expect(sandbox.fork()).rejects.toThrow(/^501: .*memory/);
      await expect(sandbox.createSnapshot()).rejects.toThrow(/^501: .*memory/);
      const pausing = client.Sandbox.create({ ...platform.access, lifecycle: { onTimeout: 'pause' } });
      await expect(pausing).rejects.toThrow(/^501: .*memory/);
      expect(await sandbox.isRunning()).toBe(true);
    } finally {
      await sandbox.kill();
    }
  });
}
