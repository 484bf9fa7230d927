import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { Sandbox } from '@cay/sdk/client';
import { MOST_MESSAGE_BYTES, openExecSession } from '../exec-server/exec-session.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { note } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

const BACKLOG_BYTES = 16 * 1024 * 1024;

export const execServerVerb: Verb = (program) => {
  const command = program
    .command('exec-server')
    .description('serve a sandbox to Codex, by its exec-server protocol on standard input and output')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .option('--listen <ip:port>', 'listen for WebSockets there instead; only on a loopback address')
    .addHelpText(
      'after',
      `
Codex runs its tools in the sandbox with this in ~/.codex/environments.toml:

  default = "cay"
  [[environments]]
  id = "cay"
  program = "cay"
  args = ["exec-server", "box"]`,
    );
  withCommonOptions(command).action(async (ref: string, options: CommonOptions & { listen?: string }) => {
    const sandbox = await openClient(options).sandbox(ref);
    if (options.listen === undefined) await serveStdio(sandbox);
    else await serveWebSockets(sandbox, parseListen(options.listen));
  });
};

async function serveStdio(sandbox: Sandbox): Promise<void> {
  const session = openExecSession(sandbox, async (text) => {
    if (!process.stdout.write(`${text}\n`)) await once(process.stdout, 'drain');
  });
  let rest = '';
  process.stdin.setEncoding('utf8');
  for await (const chunk of process.stdin as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MOST_MESSAGE_BYTES) throw usageError('A line of standard input is too long');
    for (const line of lines) if (line.trim() !== '') session.receive(line);
  }
  session.close();
}

/** Who can connect can run commands, and there is no key: other machines and browsers must not. */
async function serveWebSockets(
  sandbox: Sandbox,
  { host, port }: { host: string; port: number },
): Promise<void> {
  const { WebSocketServer } = await import('ws');
  const server = new WebSocketServer({
    host,
    port,
    maxPayload: MOST_MESSAGE_BYTES,
    verifyClient: ({ req }: { req: { headers: { origin?: string } } }) => req.headers.origin === undefined,
  });
  server.on('connection', (socket) => {
    const session = openExecSession(sandbox, (text) => {
      // A client that does not read loses its connection rather than filling the memory.
      if (socket.bufferedAmount > BACKLOG_BYTES) socket.terminate();
      else socket.send(text);
    });
    socket.on('message', (data: Buffer) => session.receive(data.toString()));
    socket.on('close', () => session.close());
    socket.on('error', () => socket.terminate());
  });
  await new Promise<void>((resolve, reject) => server.once('listening', resolve).once('error', reject));
  note(`ws://${host}:${(server.address() as AddressInfo).port}`);
  await new Promise<void>((resolve) => server.once('close', resolve));
}

function parseListen(text: string): { host: string; port: number } {
  const match = /^(127(?:\.\d{1,3}){3}|\[::1\]|localhost):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (!match || port > 65_535)
    throw usageError(
      `"${text}" is no loopback address with a port`,
      'give 127.0.0.1:PORT; 0 takes any free port',
    );
  return { host: match[1]!.replaceAll(/[[\]]/g, ''), port };
}
