/**
 * Agent tools with inputs from their schemas and hostile ones, while a program in the sandbox swaps
 * directories for symbolic links all the time. Tools act as the sandbox's user: whatever happens, no file of
 * root inside is read or changed, and no answer is a failure of the server's.
 */
import { TOOL_DIALECTS } from '@cay/sdk/protocol';
import type { Campaign } from '../support/campaign.ts';
import { valueFor, type ValueOptions } from '../support/hostile-value.ts';
import { PLATFORMS } from '../support/platforms.ts';

const PATIENCE_MS = 8_000;
const CANARY = 'root-alone-may-read-this';
const CASES_PER_CHECK = 16;
/** Swaps a directory, a file and a link to what only root may touch, as fast as it can. */
const SWAP = `
import os
os.makedirs('/tmp/race', exist_ok=True)
os.chdir('/tmp/race')
os.makedirs('real', exist_ok=True)
open('real/file', 'w').write('mine\\n')
n = 0
while True:
    n += 1
    for name, target in (('dir', 'real'), ('dir', '/root'), ('file', 'real/file'), ('file', '/root/canary'), ('dir', '/proc/1'), ('deep', '..')):
        try:
            os.symlink(target, 'next')
            os.rename('next', name)
        except OSError:
            pass
    if n % 50 == 0:
        for name in ('dir', 'file', 'deep'):
            try:
                os.unlink(name)
                os.mkdir(name) if n % 100 else open(name, 'w').close()
            except OSError:
                pass
        for name in ('dir', 'file', 'deep'):
            try: os.rmdir(name)
            except OSError: pass
`;
const PATHS = [
  '/tmp/race/dir',
  '/tmp/race/dir/canary',
  '/tmp/race/dir/file',
  '/tmp/race/file',
  '/tmp/race/deep/race/dir/canary',
  '/root/canary',
  '/proc/1/root/root/canary',
  '/proc/self/environ',
  '/dev/zero',
  '/dev/stdin',
  '/run/cay/guest.sock',
  '../../../../root/canary',
  '/tmp/race',
  '.',
  '/',
];

export const tools: Campaign = {
  name: 'tools',
  targets: PLATFORMS.map(({ target }) => target),
  async open(target, random) {
    const { id } = await target.alice.create();
    await target.alice.exec(
      id,
      ['sh', '-c', `umask 077; mkdir -p /root; printf ${CANARY} > /root/canary; chmod 700 /root`],
      { user: 'root' },
    );
    const { status } = await target.alice.call('POST', `/v1/sandboxes/${id}/commands`, {
      body: { argv: ['nice', '-n', '10', 'python3', '-c', SWAP] },
    });
    if (status !== 201) throw new Error(`the swapping program was not started: ${status}`);
    const described: { dialect: string; name: string; schema: unknown }[] = [];
    for (const dialect of TOOL_DIALECTS) {
      const { json } = await target.alice.call('GET', `/v1/tools?dialect=${dialect}&format=mcp`);
      for (const tool of (json?.tools ?? []) as Record<string, unknown>[]) {
        const name = tool['name'];
        described.push({ dialect, name: String(name), schema: tool['inputSchema'] });
      }
    }
    if (described.length === 0) throw new Error('there are no tools');
    const options: ValueOptions = { random, components: {}, words: PATHS, hostile: 0.08 };
    let cases = 0;
    return {
      async next() {
        const { dialect, name, schema } = random.pick(described);
        const input = withPaths(valueFor(schema, options), options);
        const body = {
          dialect,
          input,
          ...(random.chance(0.3) && { toolCallId: `call-${random.below(20)}` }),
          ...(random.chance(0.5) && { timeoutMs: random.pick([1, 50, 1000]) }),
        };
        const what = `${dialect} ${name} ${JSON.stringify(input)?.slice(0, 500)}`;
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const reply = await target.alice
          .call('POST', `/v1/sandboxes/${id}/tools/${name}`, { body, signal })
          .catch((error: unknown) => {
            // Commands may wait for input, or run for long.
            if (signal.aborted) return undefined;
            throw new Error(`${what}: ${String(error)}`);
          });
        if (reply && reply.status >= 500 && reply.status !== 503)
          throw new Error(`${what} → ${reply.status} ${reply.text.slice(0, 500)}`);
        if (reply?.text.includes(CANARY))
          throw new Error(`${what} → the file of root: ${reply.text.slice(0, 500)}`);
        if (cases++ % CASES_PER_CHECK === 0) {
          const { stdout } = await target.alice.exec(
            id,
            ['sh', '-c', 'cat /root/canary; ls -A /root | wc -l'],
            {
              user: 'root',
            },
          );
          if (stdout.trim() !== `${CANARY}1`) throw new Error(`${what}: root has ${stdout.trim()} now`);
        }
        return `${what.slice(0, 200)} → ${reply?.status ?? 'none in time'}`;
      },
    };
  },
};

/** Fields that are paths get one of those that are swapped, mostly. */
function withPaths(input: unknown, { random }: ValueOptions): unknown {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return input;
  const changed: Record<string, unknown> = { ...input };
  for (const name of Object.keys(changed)) {
    if (/path|dir|file|repo|cwd/i.test(name) && typeof changed[name] === 'string' && random.chance(0.8))
      changed[name] = random.pick(PATHS);
    // A command of the model's own is not what is looked at: it has the rights of the user anyway.
    if (/^(command|cmd|argv)$/.test(name)) changed[name] = Array.isArray(changed[name]) ? ['true'] : 'true';
  }
  return changed;
}
