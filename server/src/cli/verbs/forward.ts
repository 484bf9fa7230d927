import { createServer, type AddressInfo, type Socket } from 'node:net';
import { CayError, type Sandbox } from '@cay/sdk/client';
import { systemReason } from '@cay/sdk/system-error';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { reportFailure, usageError } from '../lib/failure.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { WebSocket } from 'ws';
import type { Verb } from '../verb.ts';

const HIGH_BYTES = 1024 * 1024;

export const forwardVerb: Verb = (program) => {
  const command = program
    .command('forward')
    .description('forward a port of this machine to a port of a sandbox, until Ctrl-C')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument(
      '<local:remote>',
      'the port here and the port inside, or one number for both; 0 here takes any free one',
    )
    .option('--address <ip>', 'where to listen on this machine', '127.0.0.1');
  withCommonOptions(command).action(
    async (ref: string, ports: string, options: CommonOptions & { address: string }) => {
      const { local, remote } = parsePorts(ports);
      const sandbox = await openClient(options).sandbox(ref);
      await forward(sandbox, { local, remote, address: options.address }, (port) => {
        if (options.json) printJson({ sandbox: sandbox.id, address: options.address, port, remote });
        else
          print(`${options.address}:${port} leads to port ${remote} of ${sandbox.info.name ?? sandbox.id}`);
      });
    },
  );
};

export function parsePorts(text: string): { local: number; remote: number } {
  const match = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text);
  const remote = Number(match?.[2]);
  const local = match?.[1] === undefined ? remote : Number(match[1]);
  if (!match || remote < 1 || remote > 65_535 || local > 65_535)
    throw usageError(`"${text}" is not a pair of ports`, 'give LOCAL:REMOTE, such as 8080:80');
  return { local, remote };
}

async function forward(
  sandbox: Sandbox,
  { local, remote, address }: { local: number; remote: number; address: string },
  onListening: (port: number) => void,
): Promise<void> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    tunnel(sandbox, remote, socket).catch((error: unknown) => {
      reportFailure(error);
      socket.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) =>
      reject(
        new CayError('failed_precondition', `Cannot listen on ${address}:${local}: ${systemReason(cause)}`, {
          cause,
          hint: 'choose another local port',
        }),
      ),
    );
    server.listen(local, address, resolve);
  });
  onListening((server.address() as AddressInfo).port);
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
}

async function tunnel(sandbox: Sandbox, remote: number, socket: Socket): Promise<void> {
  // The client makes its sockets with the class that it was given.
  const web = (await sandbox.tcp(remote)) as unknown as WebSocket;
  web.addEventListener('message', ({ data }) => {
    if (typeof data === 'string' || socket.write(new Uint8Array(data as ArrayBuffer))) return;
    web.pause();
    socket.once('drain', () => web.resume());
  });
  web.addEventListener('close', ({ code, reason }) => {
    if (code >= 4000) reportFailure(unreachable(sandbox, remote, reason));
    if (code === 1000) socket.end();
    else socket.destroy();
  });
  socket.on('data', (data) => {
    web.send(data, () => web.bufferedAmount < HIGH_BYTES && socket.isPaused() && socket.resume());
    if (web.bufferedAmount >= HIGH_BYTES) socket.pause();
  });
  socket.on('end', () => web.send('{"end":true}'));
  socket.on('close', () => web.close());
  socket.resume();
}

function unreachable(sandbox: Sandbox, port: number, reason: string): CayError {
  return new CayError('unavailable', `Cannot reach port ${port} of sandbox "${sandbox.id}": ${reason}`, {
    hint: '"cay port ls" shows the ports that something listens on',
  });
}
