/** Where programs that speak MCP have their configuration, and how it names a server. */
import { mkdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { writeFileAtomic } from '../../lib/atomic-file.ts';

export interface McpCommand {
  command: string;
  args: string[];
}

interface McpClient {
  /** For messages. */
  title: string;
  path(home: string): string;
  /** The content of the file with the server in it. Throws `SyntaxError` for one that cannot be read. */
  add(content: string, server: McpCommand): string;
}

const NAME = 'cay';

/** A JSON file with an object of servers under `key`. */
const json =
  (key: string, more: Record<string, unknown> = {}) =>
  (content: string, server: McpCommand): string => {
    const file: unknown = content.trim() === '' ? {} : JSON.parse(content);
    if (typeof file !== 'object' || file === null || Array.isArray(file))
      throw new SyntaxError('not an object');
    const all = file as Record<string, Record<string, unknown> | undefined>;
    return `${JSON.stringify({ ...all, [key]: { ...all[key], [NAME]: { ...more, ...server } } }, null, 2)}\n`;
  };

/** A TOML file with a table for each server; a table of ours is replaced. */
function toml(content: string, { command, args }: McpCommand): string {
  const header = `[mcp_servers.${NAME}]`;
  const lines = content.split('\n');
  const start = lines.findIndex((line) => line.trim() === header);
  if (start !== -1) {
    const length = lines.slice(start + 1).findIndex((line) => line.trim().startsWith('['));
    lines.splice(start, length === -1 ? lines.length - start : length + 1);
  }
  const before = lines.join('\n').trimEnd();
  const table = `${header}\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`;
  return before === '' ? table : `${before}\n\n${table}`;
}

export const MCP_CLIENTS: Record<string, McpClient> = {
  'claude-code': {
    title: 'Claude Code',
    path: (home) => join(home, '.claude.json'),
    add: json('mcpServers', { type: 'stdio' }),
  },
  'claude-desktop': {
    title: 'Claude Desktop',
    path: (home) =>
      process.platform === 'darwin'
        ? join(home, 'Library/Application Support/Claude/claude_desktop_config.json')
        : join(home, '.config/Claude/claude_desktop_config.json'),
    add: json('mcpServers'),
  },
  cursor: { title: 'Cursor', path: (home) => join(home, '.cursor/mcp.json'), add: json('mcpServers') },
  vscode: {
    title: 'VS Code',
    path: (home) =>
      process.platform === 'darwin'
        ? join(home, 'Library/Application Support/Code/User/mcp.json')
        : join(home, '.config/Code/User/mcp.json'),
    add: json('servers', { type: 'stdio' }),
  },
  codex: { title: 'Codex', path: (home) => join(home, '.codex/config.toml'), add: toml },
  gemini: {
    title: 'Gemini CLI',
    path: (home) => join(home, '.gemini/settings.json'),
    add: json('mcpServers'),
  },
};

/** Writes the server into the client's configuration, and returns the path of the file. */
export async function installMcp(name: string, server: McpCommand, home = homedir()): Promise<string> {
  const client = MCP_CLIENTS[name];
  if (!client)
    throw new CayError('invalid_argument', `There is no client "${name}"`, {
      hint: `these are known: ${Object.keys(MCP_CLIENTS).join(', ')}`,
    });
  const path = client.path(home);
  const content = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  let added: string;
  try {
    added = client.add(content, server);
  } catch (cause) {
    throw new CayError(
      'failed_precondition',
      `Cannot change "${path}": it is not what ${client.title} writes`,
      {
        cause,
        hint: `add this yourself: ${JSON.stringify({ [NAME]: server })}`,
      },
    );
  }
  await mkdir(dirname(path), { recursive: true });
  await writeFileAtomic(path, added);
  return path;
}
