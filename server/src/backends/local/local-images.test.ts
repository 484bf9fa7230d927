/** Sandboxes from images, on each runtime: with a userland, with a single program, and with nothing. */
import { existsSync, readFileSync } from 'node:fs';
import { newId, SandboxSpecSchema, type SandboxSpecInput } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { drain } from '../../../../test/conformance/box.ts';
import {
  startRegistry,
  whyNoRegistry,
  type DockerRegistry,
} from '../../../../test/support/docker-registry.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import type { Guest } from '../../guest/guest.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { imageOf, layerOf, pushImage } from '../../host/images/testing/test-image.ts';
import { openPolicy } from '../../policy/policy.ts';
import { openLocal, type OpenLocalOptions } from './open-local.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const BUSYBOX = '/bin/busybox';
const why =
  whyNoLocal() ??
  whyNoRegistry() ??
  (existsSync(BUSYBOX) ? undefined : `${BUSYBOX} (Debian's busybox-static) is not installed`);
if (why !== undefined) console.info(`sandboxes from images: skipped: ${why}`);

const APPLETS = ['sh', 'cat', 'echo', 'id', 'ls', 'env', 'pwd', 'touch', 'rm', 'mkdir', 'chown'];

async function ran(guest: Guest, argv: string[], user = 'user', workdir = '/'): Promise<string> {
  const { stdout } = await drain(await guest.exec({ id: newId('cmd'), argv, env: {}, workdir, user }));
  return stdout.trim();
}

for (const runtime of ['runc', 'runsc']) {
  describe.skipIf(why !== undefined)(`sandboxes from images on ${runtime}`, { timeout: 60_000 }, () => {
    let registry: DockerRegistry;
    let world: LocalWorld;
    const at = (name: string) => `${registry.address}/${name}`;
    const insecure = () => ({ imageSettings: { insecure: [registry.address] } });
    const open = (options: Partial<OpenLocalOptions>) =>
      openLocal({ dir: world.dir, runtime, poolSize: 0, sweepEveryMs: 0, ...options });
    const specOf = (spec: SandboxSpecInput) => SandboxSpecSchema.parse({ runtime, ...spec });

    beforeAll(async () => {
      [registry, world] = await Promise.all([startRegistry(), localWorld({ runtime })]);
      const busybox = layerOf([
        { name: 'bin', type: 'directory' },
        { name: 'bin/busybox', mode: 0o755, content: readFileSync(BUSYBOX) },
        ...APPLETS.map((name) => ({ name: `bin/${name}`, type: 'symlink' as const, target: 'busybox' })),
        { name: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\nnode:x:1234:1234::/srv:/bin/sh\n' },
        { name: 'srv', type: 'directory', uid: 1234, gid: 1234 },
      ]);
      const config = { Env: ['PATH=/bin', 'GREETING=hello', 'HOME=/wrong'], WorkingDir: '/work' };
      await pushImage(registry, 'team/busybox', '1', imageOf([busybox], { config }));
      // The guest's own program is static: there is nothing else in this image.
      const scratch = layerOf([{ name: 'only', mode: 0o755, content: readFileSync(guestBinary()) }]);
      await pushImage(registry, 'team/scratch', '1', imageOf([scratch]));
      await pushImage(registry, 'team/empty', '1', imageOf([]));
    });
    afterAll(async () => {
      await world?.destroy();
      await registry?.stop();
    });

    it('run the programs of the image, with its environment, users and directories', async () => {
      const backend = await open(insecure());
      const spec = specOf({ template: at('team/busybox:1'), workdir: '/work' });
      await backend.validate(spec);
      const id = newId('sbx');
      await backend.ensure(id, spec);
      const guest = await backend.connect(id);
      expect(await ran(guest, ['id', '-u'])).toBe('1000');
      expect(await ran(guest, ['id', '-u'], 'node')).toBe('1234');
      expect(await ran(guest, ['sh', '-c', 'echo $GREETING $HOME'])).toBe('hello /home/user');
      expect(await ran(guest, ['sh', '-c', 'touch made && pwd && ls'], 'user', '/work')).toBe('/work\nmade');
      expect(await ran(guest, ['sh', '-c', 'echo x > /etc/new && cat /etc/new'], 'root')).toBe('x');
      expect(await ran(guest, ['sh', '-c', 'touch /srv/own && echo yes'], 'node')).toBe('yes');

      // A stopped one starts again with its files, and neither it nor a clone needs the registry.
      const snapshot = newId('snap');
      await backend.snapshot(id, snapshot);
      await backend.stop(id, { graceMs: 0 });
      await backend.close();
      const offline = await open({});
      await offline.ensure(id, spec);
      expect(await ran(await offline.connect(id), ['sh', '-c', 'cat /etc/new; echo $GREETING'])).toBe(
        'x\nhello',
      );
      const clone = newId('sbx');
      await offline.clone(clone, spec, snapshot, { start: true });
      expect(await ran(await offline.connect(clone), ['sh', '-c', 'echo $GREETING'])).toBe('hello');
      // Another one is made from what is here.
      const second = newId('sbx');
      await offline.ensure(second, spec);
      for (const each of [id, clone, second]) await offline.remove(each);
      await offline.close();
    });

    it('need no program of the image', async () => {
      const backend = await open(insecure());
      for (const template of ['team/scratch:1', 'team/empty:1']) {
        const id = newId('sbx');
        await backend.ensure(id, specOf({ template: at(template) }));
        const guest = await backend.connect(id);
        const files = guest.files('user');
        await files.write('/home/user/note', Buffer.from('kept'));
        const names: string[] = [];
        for await (const { name } of files.list('/')) names.push(name);
        expect(names).toContain('tmp');
        if (template.startsWith('team/scratch')) {
          const ended = await drain(
            await guest.exec({ id: 'a', argv: ['/only', 'nonsense'], env: {}, workdir: '/', user: 'user' }),
          );
          expect(ended.stderr).not.toBe('');
        }
        await backend.remove(id);
      }
      await backend.close();
    });

    it('are refused by what the operator allows, and for names that no registry has', async () => {
      const policy = openPolicy({ images: [at('team/busybox:1')] });
      const backend = await open({ ...insecure(), policy });
      await expect(backend.validate(specOf({ template: at('team/scratch:1') }))).rejects.toMatchObject({
        code: 'permission_denied',
      });
      // A digest beside an allowed tag is allowed if the tag leads to it, and no other is.
      const images = backend.ability('images')!;
      const { pinned } = (await images.resolveImage(at('team/busybox:1')))!;
      await backend.validate(specOf({ template: pinned }));
      const other = `${at('team/busybox:1')}@sha256:${'0'.repeat(64)}`;
      await expect(backend.validate(specOf({ template: other }))).rejects.toMatchObject({
        code: 'permission_denied',
      });
      await backend.close();
      const free = await open(insecure());
      for (const template of [at('team/none:1'), 'no such/Template'])
        await expect(free.validate(specOf({ template }))).rejects.toMatchObject({
          code: 'not_found',
          details: { what: 'template' },
        });
      // Of this machine, and not named by the operator.
      await expect(free.validate(specOf({ template: '127.0.0.1:1/x' }))).rejects.toMatchObject({
        code: 'permission_denied',
      });
      expect(await free.ability('images')!.resolveImage('base')).toBeUndefined();
      await free.close();
    });
  });
}
