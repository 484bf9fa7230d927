import { describe, expect, it } from 'vitest';
import { requireAccountFiles } from './account-files.ts';
import type { DockerClient } from './docker-client.ts';

const SYMLINK = 2 ** 27;
const PIPE = 2 ** 25;

/** An engine whose container has these files. */
function engineWith(files: Record<string, { mode: number; linkTarget?: string }>): DockerClient {
  const client = {
    header: async (_path: string, _name: string, { query }: { query: { path: string } }) => {
      const file = files[query.path];
      return file && Buffer.from(JSON.stringify({ linkTarget: '', ...file })).toString('base64');
    },
  };
  return client as unknown as DockerClient;
}

const call = { action: 'start sandbox "x"' };

describe('the files that the engine opens itself', () => {
  it('may be files, links to files, or missing', async () => {
    await requireAccountFiles(
      engineWith({
        '/etc/passwd': { mode: SYMLINK | 0o777, linkTarget: '/var/passwd' },
        '/var/passwd': { mode: 0o644 },
      }),
      'c',
      call,
    );
  });

  it.each([
    ['a pipe', { '/etc/passwd': { mode: PIPE | 0o644 } }, '/etc/passwd'],
    [
      'a link to one',
      {
        '/etc/passwd': { mode: 0o644 },
        '/etc/group': { mode: SYMLINK | 0o777, linkTarget: '/tmp/p' },
        '/tmp/p': { mode: PIPE | 0o600 },
      },
      '/etc/group',
    ],
  ])('may not be %s', async (_what, files, named) => {
    await expect(requireAccountFiles(engineWith(files), 'c', call)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: `Cannot start sandbox "x": its "${named}" is a named pipe`,
    });
  });
});
