import { realpathSync } from 'node:fs';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { installMcp, MCP_CLIENTS } from '../lib/mcp-clients.ts';
import { note, print, printJson } from '../lib/output.ts';
import { sdkMcpHost } from '../lib/sdk-mcp-host.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { VERSION } from '../lib/version.ts';
import type { Verb } from '../verb.ts';

export const mcpVerb: Verb = (program, { entry }) => {
  const mcp = program
    .command('mcp')
    .description('serve sandboxes to an MCP client on standard input and output')
    .addHelpText(
      'after',
      `
A server that listens has the same tools at /mcp, with its keys as bearer tokens.

  cay mcp install claude-code`,
    );
  withCommonOptions(mcp).action(async (options: CommonOptions) => {
    // Loaded here, because no other verb needs them.
    const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
    const { mcpServer } = await import('../../api/mcp/mcp-server.ts');
    const host = sdkMcpHost(openClient(options).options);
    serveStdio(() => mcpServer(host, VERSION));
    await new Promise<void>((resolve) => process.stdin.once('close', resolve));
  });
  withCommonOptions(
    mcp
      .command('install')
      .description('add "cay mcp" to the configuration of an MCP client')
      .argument('<client>', Object.keys(MCP_CLIENTS).join(', ')),
  ).action(async (client: string, options: CommonOptions) => {
    const server = { command: process.execPath, args: [realpathSync(entry), 'mcp'] };
    const path = await installMcp(client, server);
    if (options.json) return printJson({ client, path, server });
    print(path);
    note(`${MCP_CLIENTS[client]!.title} finds "cay" after its next start`);
  });
};
