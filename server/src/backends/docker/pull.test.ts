import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { drain } from '../../../../test/conformance/box.ts';
import {
  startRegistry,
  whyNoRegistry,
  type DockerRegistry,
} from '../../../../test/support/docker-registry.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../../../../test/support/dockerd.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { dockerBackend, type DockerBackend } from './docker.ts';

const run = promisify(execFile);
const why = whyNoDockerd() ?? whyNoRegistry();
if (why !== undefined) console.info(`pulling images: skipped: ${why}`);

describe.skipIf(why !== undefined)('an image that only a registry has', () => {
  let engine: Dockerd;
  let registry: DockerRegistry;
  let backend: DockerBackend;
  let image: string;

  beforeAll(async () => {
    [engine, registry] = await Promise.all([startDockerd(), startRegistry()]);
    const docker = (...args: string[]) => run('docker', ['-H', engine.host, ...args]);
    image = `${registry.address}/team/tool:1`;
    await engine.importBaseImage('made-here');
    await docker('tag', 'made-here', image);
    await docker('push', image);
    await docker('rmi', image, 'made-here');
    backend = dockerBackend({ host: engine.host, guestPath: guestBinary(), baseImage: 'base' });
  });
  afterAll(async () => {
    await backend?.close();
    await engine?.stop();
    await registry?.stop();
  });

  const specOf = (template: string) => SandboxSpecSchema.parse({ template, limits: { diskBytes: null } });

  it('is pulled when a sandbox is made from it, and then is a template', { timeout: 120_000 }, async () => {
    expect((await backend.capabilities()).templates).not.toContain(image);
    await backend.validate(specOf(image));
    const id = newId('sbx');
    await backend.ensure(id, specOf(image));
    const guest = await backend.connect(id);
    const hello = { id: 'a', argv: ['echo', 'pulled'], env: {}, workdir: '/', user: 'user' };
    expect((await drain(await guest.exec(hello))).stdout).toBe('pulled\n');
    expect((await backend.capabilities()).templates).toContain(image);
    await backend.remove(id);
  });

  it('is not_found under a tag that the registry does not have, and nothing is made', async () => {
    const spec = specOf(`${registry.address}/team/tool:2`);
    const unknown = { code: 'not_found', details: { what: 'template' } };
    await expect(backend.validate(spec)).rejects.toMatchObject(unknown);
    await expect(backend.ensure(newId('sbx'), spec)).rejects.toMatchObject(unknown);
    expect(await backend.list()).toEqual([]);
  });
});
