import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { installMcp, MCP_CLIENTS } from './mcp-clients.ts';

const server = { command: '/opt/cay', args: ['mcp'] };
let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'cay-mcp-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

it.each(Object.keys(MCP_CLIENTS).filter((name) => name !== 'codex'))(
  'adds itself to the configuration of %s and keeps the rest',
  async (name) => {
    const path = MCP_CLIENTS[name]!.path(home);
    await mkdir(dirname(path), { recursive: true });
    const key = name === 'vscode' ? 'servers' : 'mcpServers';
    await writeFile(path, JSON.stringify({ theme: 'dark', [key]: { other: { command: 'x' } } }));
    expect(await installMcp(name, server, home)).toBe(path);
    await installMcp(name, server, home);
    expect(JSON.parse(await readFile(path, 'utf8'))).toMatchObject({
      theme: 'dark',
      [key]: { other: { command: 'x' }, cay: server },
    });
  },
);

it('replaces its own table in a TOML file, and no other', async () => {
  const path = MCP_CLIENTS['codex']!.path(home);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(
    path,
    'model = "m"\n\n[mcp_servers.cay]\ncommand = "old"\n\n[mcp_servers.other]\ncommand = "o"\n',
  );
  await installMcp('codex', server, home);
  expect(await readFile(path, 'utf8')).toBe(
    'model = "m"\n\n[mcp_servers.other]\ncommand = "o"\n\n[mcp_servers.cay]\ncommand = "/opt/cay"\nargs = ["mcp"]\n',
  );
});

it('makes a file that is missing, and leaves one alone that it cannot read', async () => {
  const path = await installMcp('cursor', server, home);
  expect(JSON.parse(await readFile(path, 'utf8'))).toEqual({ mcpServers: { cay: server } });
  await writeFile(path, '// a comment\n{}');
  await expect(installMcp('cursor', server, home)).rejects.toMatchObject({ code: 'failed_precondition' });
  expect(await readFile(path, 'utf8')).toBe('// a comment\n{}');
  await expect(installMcp('emacs', server, home)).rejects.toMatchObject({ code: 'invalid_argument' });
});
