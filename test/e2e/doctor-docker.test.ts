import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';

const MAIN = join(import.meta.dirname, '../../server/src/main.ts');
const why = whyNoDockerd();
if (why !== undefined) console.info(`cay doctor on Docker: skipped: ${why}`);

describe.skipIf(why !== undefined)('cay doctor on Docker', () => {
  let engine: Dockerd;
  beforeAll(async () => {
    engine = await startDockerd({ runtimes: { broken: '/bin/false' } });
    await engine.importBaseImage();
  });
  afterAll(() => engine?.stop());

  it('starts a sandbox on each runtime, so that a broken one is reported', { timeout: 120_000 }, async () => {
    const args = [MAIN, 'doctor', '--backend', 'docker', '--json'];
    const env = { ...process.env, DOCKER_HOST: engine.host, CAY_DOCKER_IMAGE: 'base' };
    const { stdout } = await promisify(execFile)(process.execPath, args, { env }).catch(
      (error: { stdout: string }) => error,
    );
    const { findings } = JSON.parse(stdout) as { findings: { what: string; state: string }[] };
    const stateOf = (name: string) => findings.find(({ what }) => what === name)?.state;
    expect(stateOf('runc')).toBe('works');
    expect(stateOf('broken')).toBe('absent');
  });
});
