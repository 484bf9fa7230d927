import type { Duplex } from 'node:stream';
import { systemReason } from '@cay/sdk/system-error';
import type WebSocket from 'ws';
import { programStream } from '../../support/program-stream.ts';
import type { KubernetesClient } from './kubernetes-client.ts';

export interface ExecStreamOptions {
  namespace: string;
  pod: string;
  container: string;
  argv: string[];
  action: string;
  signal?: AbortSignal;
}

const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, status: 3 } as const;
/** A proxy or a load balancer on the way may drop a connection that is silent. */
const PING_MS = 30_000;

/**
 * Runs a program in a container over one WebSocket; the stream is its standard input and output. Its standard
 * error, or what the kubelet writes there, becomes the message of the failure when the program ends unasked.
 */
export async function execStream(client: KubernetesClient, options: ExecStreamOptions): Promise<Duplex> {
  const { namespace, pod, container, argv, action, signal } = options;
  const socket = await client.socket(`/api/v1/namespaces/${namespace}/pods/${pod}/exec`, {
    action,
    signal,
    query: { container, command: argv, stdin: true, stdout: true, stderr: true, tty: false },
  });
  return overSocket(socket, action);
}

function overSocket(socket: WebSocket, action: string): Duplex {
  let answered = true;
  const pinging = setInterval(() => {
    // Without pings a connection whose other end has gone would stay open for hours.
    if (!answered) return socket.terminate();
    answered = false;
    socket.ping();
  }, PING_MS);
  pinging.unref();
  const { stream, onOutput, onWords, onEnd } = programStream(
    {
      write(part, done) {
        const message = Buffer.allocUnsafe(part.length + 1);
        message[0] = CHANNEL.stdin;
        part.copy(message, 1);
        socket.send(message, done);
      },
      end(done) {
        socket.close();
        done();
      },
      pause: () => socket.pause(),
      resume: () => socket.resume(),
      destroy() {
        clearInterval(pinging);
        socket.terminate();
      },
    },
    action,
  );
  socket.on('pong', () => (answered = true));
  socket.on('message', (message: Buffer, binary) => {
    if (!binary || message.length === 0) return;
    answered = true;
    const data = message.subarray(1);
    if (message[0] === CHANNEL.stdout) onOutput(data);
    else if (message[0] === CHANNEL.stderr) onWords(data);
    else if (message[0] === CHANNEL.status) onWords(messageOf(data));
  });
  socket.on('error', (error) => onWords(Buffer.from(systemReason(error))));
  socket.on('close', () => {
    onEnd();
    stream.destroy();
  });
  return stream;
}

/** How the exec ended, as the kubelet reports it; nothing for success. */
function messageOf(data: Buffer): Buffer {
  try {
    const { status, message } = JSON.parse(data.toString()) as { status?: string; message?: string };
    return Buffer.from(status === 'Success' ? '' : (message ?? ''));
  } catch {
    return data;
  }
}
