import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LAUNCHER_PATH } from '../support/cay.ts';

const run = promisify(execFile);

/** The launcher in a tree of its own, where every program that it may start only says that it was started. */
let root: string;
beforeEach(async () => {
  root = await mkdtemp('/tmp/cay-launcher-');
  await copyFile(LAUNCHER_PATH, join(root, 'cay'));
  for (const dir of ['node_modules/.bin', 'node_modules/commander', 'bin'])
    await mkdir(join(root, dir), { recursive: true });
  await says('node_modules/.bin/node', 'node ${@:2}');
  await says('bin/npm', 'npm $@');
});
afterEach(() => rm(root, { recursive: true, force: true }));

async function says(path: string, what: string): Promise<void> {
  await writeFile(join(root, path), `#!/bin/bash\necho "${what}"\n`);
  await chmod(join(root, path), 0o755);
}

async function launch(path: string, ...args: string[]): Promise<string> {
  const { stdout, stderr } = await run(path, args, {
    env: { PATH: `${root}/bin:/usr/bin:/bin`, HOME: root },
  });
  return stdout + stderr;
}

describe('the launcher', () => {
  it('starts the command line at once when nothing is missing, through symlinks too', async () => {
    await symlink('../cay', join(root, 'bin/one'));
    await symlink(join(root, 'bin/one'), join(root, 'bin/two'));
    for (const path of ['cay', 'bin/one', 'bin/two'])
      expect(await launch(join(root, path), 'run', '--', 'a b')).toBe('node run -- a b\n');
  });

  it('installs npm packages when they are missing, and says so', async () => {
    await rm(join(root, 'node_modules'), { recursive: true });
    await writeFile(
      join(root, 'bin/npm'),
      `#!/bin/bash\nmkdir -p node_modules/.bin\nprintf '#!/bin/bash\\necho "node \${@:2}"\\n' > node_modules/.bin/node\nchmod +x node_modules/.bin/node\n`,
    );
    expect(await launch(join(root, 'cay'), 'ls')).toBe('node ls\ncay: installing npm packages…\n');
  });

  it("shows npm's own words when that fails", async () => {
    await rm(join(root, 'node_modules'), { recursive: true });
    await writeFile(join(root, 'bin/npm'), '#!/bin/bash\necho no network\nexit 1\n');
    await expect(launch(join(root, 'cay'), 'ls')).rejects.toMatchObject({
      code: 69,
      stderr: expect.stringMatching(/no network[\s\S]*error: [\s\S]*hint: /) as string,
    });
  });
});
