import { createSocket } from 'node:dgram';
import { once } from 'node:events';

/** Sends a datagram, again every 200 ms, and resolves the answer; an empty one if there is none in time. */
export async function askByUdp(port: number, text: string, withinMs = 20_000): Promise<string> {
  const socket = createSocket('udp4');
  const send = () => socket.send(text, port, '127.0.0.1', () => {});
  const timer = setInterval(send, 200);
  send();
  try {
    const [answer] = (await once(socket, 'message', { signal: AbortSignal.timeout(withinMs) })) as [Buffer];
    return answer.toString();
  } catch {
    return '';
  } finally {
    clearInterval(timer);
    socket.close();
  }
}

/** A program that answers each datagram with its own text after `echo`. */
export const UDP_ECHO = (port: number, address = '0.0.0.0') => [
  'python3',
  '-c',
  `import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("${address}", ${port}))
while True:
    text, sender = one.recvfrom(65536)
    one.sendto(b"echo " + text, sender)`,
];
