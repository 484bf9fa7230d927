/**
 * A registry for images on loopback, of Debian's `docker-registry`, with its data in a directory of its own.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from './free-ports.ts';

const PROGRAM = '/usr/bin/docker-registry';
const START_MS = 20_000;

export interface DockerRegistry {
  /** `127.0.0.1:PORT`, as an image's name begins. */
  readonly address: string;
  stop(): Promise<void>;
}

/** Why no registry can be started here, or `undefined` if one can. */
export function whyNoRegistry(): string | undefined {
  return existsSync(PROGRAM) ? undefined : 'docker-registry is not installed (scripts/install-host --tests)';
}

export async function startRegistry(options: { htpasswd?: string } = {}): Promise<DockerRegistry> {
  const dir = await mkdtemp('/tmp/cay-registry-');
  const address = `127.0.0.1:${await freePort()}`;
  const config = join(dir, 'config.yml');
  // With a line of "htpasswd -nbB" it asks for that password.
  const { htpasswd } = options;
  if (htpasswd !== undefined) await writeFile(join(dir, 'htpasswd'), htpasswd);
  const auth =
    htpasswd === undefined ? '' : `auth:\n  htpasswd:\n    realm: cay\n    path: ${dir}/htpasswd\n`;
  await writeFile(
    config,
    `${auth}version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: ${dir}/data\nhttp:\n  addr: ${address}\n`,
  );
  const child = spawn(PROGRAM, ['serve', config], { stdio: 'ignore' });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const deadline = Date.now() + START_MS;
  while (!(await answers(address))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`docker-registry does not answer at ${address}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    address,
    async stop() {
      child.kill('SIGTERM');
      await ended;
      await rm(dir, { recursive: true });
    },
  };
}

async function answers(address: string): Promise<boolean> {
  return fetch(`http://${address}/v2/`).then(
    ({ ok, status }) => ok || status === 401,
    () => false,
  );
}
