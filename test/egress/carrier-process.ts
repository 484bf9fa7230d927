/**
 * A process that carries the connections of one sandbox until it is killed. It says when it does, in a line
 * of JSON.
 *
 *     node carrier-process.ts ID PORT local DIR RUNTIME
 *     node carrier-process.ts ID PORT docker HOST
 *
 * `target.example.org` leads to 127.0.0.1, and is allowed on the port, over TCP and UDP.
 */
import { writeSync } from 'node:fs';
import { SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { dockerBackend } from '../../server/src/backends/docker/docker.ts';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { openWorld } from '../../server/src/egress/testing/program.ts';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';

const [id, port, how, where, runtime] = process.argv.slice(2) as [SandboxId, string, string, string, string];
const { egress, names } = openWorld();
names.set('target.example.org', ['127.0.0.1']);
const allow = [`target.example.org:${port}`, `udp:target.example.org:${port}`];
egress.policies.set(id, [{ allow }, 'public']);
const backend =
  how === 'docker'
    ? dockerBackend({ host: where, guestPath: guestBinary(), baseImage: 'base', egress })
    : await openLocal({ dir: where, runtime, poolSize: 0, egress });
await backend.ensure(
  id,
  SandboxSpecSchema.parse(how === 'docker' ? { limits: { diskBytes: null } } : { runtime }),
);
const guest = await backend.connect(id);
if (process.env['CAY_TEST_PROGRAM'] !== undefined) {
  const argv = ['python3', '-c', process.env['CAY_TEST_PROGRAM']];
  await guest.exec({ id: 'loop', argv, env: {}, workdir: '/', user: 'user' });
}
writeSync(1, '{"carries":true}\n');
if (process.env['CAY_TEST_REMOVE'] !== undefined) {
  await backend.remove(id);
  process.exit();
}
setInterval(() => {}, 1000);
