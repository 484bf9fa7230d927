import type { Duplex } from 'node:stream';
import { programStream } from '../support/program-stream.ts';
import type { DockerClient } from './docker-client.ts';
import { demux } from './demux.ts';

export interface ExecStreamOptions {
  container: string;
  argv: string[];
  action: string;
  signal?: AbortSignal;
}

const STDERR = 2;

/**
 * Runs a program in the container as root, and is its standard input and output. What it says on
 * standard error becomes the message with which the stream fails when the program ends unasked.
 */
export async function execStream(client: DockerClient, options: ExecStreamOptions): Promise<Duplex> {
  const { container, argv, action, signal } = options;
  const made = (await client.json('POST', `/containers/${container}/exec`, {
    action,
    signal,
    body: {
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: false,
      User: '0:0',
      WorkingDir: '/',
      Cmd: argv,
    },
  })) as { Id: string };
  // The signal covers the making only: a request's own would end the stream later as well.
  const starting = new AbortController();
  const abort = () => starting.abort(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    signal?.throwIfAborted();
    const socket = await client.hijack(`/exec/${made.Id}/start`, {
      action,
      body: { Detach: false, Tty: false },
      signal: starting.signal,
    });
    return overSocket(socket, action);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

function overSocket(socket: Duplex, action: string): Duplex {
  const take = demux();
  const { stream, onOutput, onWords, onEnd } = programStream(
    {
      write: (part, done) => socket.write(part, done),
      end: (done) => socket.end(done),
      pause: () => socket.pause(),
      resume: () => socket.resume(),
      destroy: () => socket.destroy(),
    },
    action,
  );
  socket.on('data', (part: Buffer) => {
    try {
      take(part, (channel, data) => (channel === STDERR ? onWords(data) : onOutput(data)));
    } catch (error) {
      stream.destroy(error as Error);
    }
  });
  socket.on('end', onEnd);
  socket.on('error', (error) => stream.destroy(error));
  socket.on('close', () => stream.destroy());
  return stream;
}
