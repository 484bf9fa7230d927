import {
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { McpHost } from './mcp-host.ts';
import { MCP_TOOLS, type McpTool } from './mcp-tools.ts';

const INSTRUCTIONS =
  'Sandboxes are isolated computers. Create one with sandbox_create and pass its id as "sandbox" to the other tools. ' +
  'Prefer read, edit, glob and grep to shell commands that do the same. ' +
  'Take a checkpoint before risky changes; rollback returns to it.';

/** Of a file that is read as a resource. */
const LARGEST_RESOURCE = 1024 * 1024;

/** One MCP server for one host. Made for each request of `/mcp`, and once by `cay mcp`. */
export function mcpServer(host: McpHost, version: string): McpServer {
  const server = new McpServer(
    { name: 'cay', title: 'Cay sandboxes', version },
    {
      instructions: INSTRUCTIONS,
      capabilities: { tools: { listChanged: false }, resources: { listChanged: false } },
    },
  );
  for (const tool of MCP_TOOLS) register(server, host, tool);
  server.registerResource(
    'sandboxes',
    'cay://sandboxes',
    { title: 'Sandboxes', description: 'The sandboxes of the project', mimeType: 'application/json' },
    async (uri) => {
      const sandboxes = (await host.list()).map(({ id, name, state }) => ({ id, name, state }));
      return { contents: [{ uri: uri.href, mimeType: 'application/json', text: JSON.stringify(sandboxes) }] };
    },
  );
  server.registerResource(
    'file',
    new ResourceTemplate('cay://sandbox/{sandbox}/{+path}', { list: undefined }),
    { title: 'A file of a sandbox', description: 'At most the first megabyte of it' },
    async (uri, variables, context) => {
      const sandbox = String(variables['sandbox']);
      const { signal } = context.mcpReq;
      const data = await host
        .file(sandbox, pathIn(String(variables['path'])), { most: LARGEST_RESOURCE, signal })
        .then((bytes) => Buffer.from(bytes))
        .catch((error: unknown) => {
          throw refusal(error, uri.href);
        });
      const isText = !data.includes(0);
      return {
        contents: [
          isText
            ? { uri: uri.href, mimeType: 'text/plain', text: data.toString('utf8') }
            : { uri: uri.href, mimeType: 'application/octet-stream', blob: data.toString('base64') },
        ],
      };
    },
  );
  return server;
}

function register(server: McpServer, host: McpHost, tool: McpTool): void {
  const { name, title, description, input: inputSchema, output: outputSchema } = tool;
  const annotations = { title, openWorldHint: name === 'bash', ...tool.annotations };
  server.registerTool(
    name,
    { title, description, inputSchema, outputSchema, annotations },
    async (input: unknown, context: ServerContext) => {
      try {
        const {
          content,
          structured,
          isError = false,
        } = await tool.run(host, input as never, {
          signal: context.mcpReq.signal,
          onProgress: progressOf(context),
        });
        return { content, structuredContent: structured, ...(isError && { isError }) };
      } catch (error) {
        return failure(error);
      }
    },
  );
}

/** The path in a URI. */
function pathIn(text: string): string {
  try {
    return `/${decodeURIComponent(text).replace(/^\/+/, '')}`;
  } catch {
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `"${text.slice(0, 200)}" is no path`);
  }
}

/** A failure of a resource, in the codes of the protocol. What nobody expected is not shown. */
function refusal(error: unknown, uri: string): Error {
  if (!isCayError(error) || error.code === 'internal')
    return new ProtocolError(ProtocolErrorCode.InternalError, 'The server failed');
  if (error.code === 'not_found') return new ResourceNotFoundError(uri, error.message);
  return new ProtocolError(ProtocolErrorCode.InvalidParams, error.message);
}

/** Progress is output in bytes, if the client asked for any. */
function progressOf(context: ServerContext): (progress: { bytes: number; text: string }) => void {
  const progressToken = context.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return () => {};
  return ({ bytes, text }) => {
    const message = text.trimEnd().split('\n').at(-1)?.slice(-200) ?? '';
    const params = { progressToken, progress: bytes, message };
    context.mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
  };
}

/** An error that the model can read, and a program too. */
function failure(error: unknown) {
  const known = isCayError(error) ? error : new CayError('internal', 'The server failed', { cause: error });
  const { code, message, hint, details } = known.toWire();
  const words = hint === undefined ? message : `${message}\nHint: ${hint}`;
  return {
    content: [{ type: 'text' as const, text: `${code}: ${words}` }],
    isError: true,
    _meta: {
      'cay/error': { code, message, ...(hint !== undefined && { hint }), ...(details && { details }) },
    },
  };
}
