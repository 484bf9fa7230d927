/**
 * What is asked for inside TLS: questions to name servers (DoH), another name than the one outside, hidden
 * hellos.
 */
import { connect as connectHttp2 } from 'node:http2';
import { setTimeout as sleep } from 'node:timers/promises';
import { clientHello, extension, record, serverName, sized } from '../client-hello.ts';
import {
  blocked,
  broken,
  type CaseWorld,
  type EnforcementCase,
  open,
  skipped,
  works,
} from '../enforcement-case.ts';
import { handshake, sendPieces } from '../relayed-tls.ts';

const NAME = 'web.report.example';
/** A rule has conditions on its requests, so the server ends its TLS. */
const LOOKED_INTO = 'api.report.example';
const OTHER = 'other.report.example';
const NOTHING = 'this server carries nothing out';
/** A question for the address of a name, in 29 bytes. */
const QUESTION = Buffer.from(
  '000701000001000000000000 0178 066578616d706c65 00 0001 0001'.replaceAll(' ', ''),
  'hex',
);

/** Sends requests inside TLS, and gives the first line of what comes. */
async function ask(world: CaseWorld, name: string, requests: readonly (string | Buffer)[]): Promise<string> {
  const socket = await handshake(world, name);
  if (typeof socket === 'string') return socket;
  const said = new Promise<string>((resolve) => {
    socket.once('data', (chunk: Buffer) => resolve(chunk.toString('latin1').split('\r\n')[0]!.slice(0, 80)));
    socket.once('close', () => resolve('closed'));
    setTimeout(() => resolve('no answer'), 3000).unref();
  });
  for (const [at, request] of requests.entries()) {
    if (at > 0) await sleep(200);
    if (!socket.destroyed) socket.write(request);
  }
  const line = await said;
  // What a later request does is seen a moment later.
  await sleep(requests.length > 1 ? 300 : 50);
  socket.destroy();
  return line;
}

const asking = (
  id: string,
  title: string,
  name: string,
  requests: (word: string, host: string) => readonly (string | Buffer)[],
  good = false,
): EnforcementCase => ({
  id,
  title,
  async run(world) {
    if (!world.carries) return skipped(NOTHING);
    const word = world.target.word();
    const said = await ask(world, name, requests(word, `${name}:${world.target.port}`));
    const arrived = world.target.saw(word);
    if (good) return arrived ? works(said) : broken(said);
    return arrived ? open(`the target got it (${said})`) : blocked(said);
  },
});
const question = (word: string, host: string) => [
  `POST /dns-query?${word} HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/dns-message\r\nContent-Length: ${QUESTION.length}\r\n\r\n`,
  QUESTION,
];
const get = (path: string, host: string) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;

/** A hello that asks for a name, and has a part that only its receiver can read. */
function encrypted(name: string, part: string): Buffer {
  // An outer hello: a suite, an id, a key, and what is encrypted. Browsers send random bytes of this shape.
  const hidden = Buffer.concat([
    Buffer.from([0, 0, 1, 0, 1, 7]),
    sized(Buffer.alloc(32, 9)),
    sized(Buffer.from(part.padEnd(144, '.'))),
  ]);
  return record(clientHello([serverName(name), extension(0xfe0d, hidden)]));
}

export const INSIDE_TLS: readonly EnforcementCase[] = [
  asking('dns.doh', 'a question over HTTPS (DoH) to a name that a rule has', NAME, question, true),
  asking(
    'dns.doh-elsewhere',
    'a question over HTTPS (DoH) to a name that no rule has',
    'front.report.example',
    question,
  ),
  asking(
    'dns.doh-condition',
    'a question over HTTPS (DoH) where a rule allows other requests',
    LOOKED_INTO,
    question,
  ),
  asking('dns.doh-condition-get', 'the same in the query of a request', LOOKED_INTO, (word, host) => [
    get(`/dns-query?dns=${QUESTION.toString('base64url')}&${word}`, host),
  ]),
  asking('tls.front-host', 'another name in Host, inside TLS (domain fronting)', LOOKED_INTO, (word) => [
    get(`/open/${word}`, OTHER),
  ]),
  asking('tls.front-later', 'another name in a later request inside TLS', LOOKED_INTO, (word, host) => [
    get('/open', host),
    get(`/open/${word}`, OTHER),
  ]),
  asking('tls.front-connect', 'CONNECT inside TLS', LOOKED_INTO, (word) => [
    `CONNECT ${OTHER}:443 HTTP/1.1\r\nHost: ${OTHER}:443\r\n\r\n`,
    get(`/open/${word}`, OTHER),
  ]),
  {
    id: 'tls.front-authority',
    title: 'another name in :authority, inside TLS (HTTP/2)',
    async run(world) {
      if (!world.carries) return skipped(NOTHING);
      const word = world.target.word();
      const socket = await handshake(world, LOOKED_INTO, { ALPNProtocols: ['h2'] });
      if (typeof socket === 'string') return broken(socket);
      if (socket.alpnProtocol !== 'h2') return broken('HTTP/2 is not spoken');
      const said = await new Promise<string>((resolve) => {
        const session = connectHttp2(`https://${LOOKED_INTO}`, { createConnection: () => socket });
        const done = (text: string) => {
          clearTimeout(timer);
          session.destroy();
          resolve(text);
        };
        const timer = setTimeout(() => done('no answer'), 3000);
        session.on('error', (error) => done(error.message)).on('close', () => done('closed'));
        const request = session.request({ ':path': `/open/${word}`, ':authority': OTHER });
        request.on('response', (answer) => done(`status ${answer[':status']}`));
        request.on('error', (error) => done(error.message));
        request.end();
      });
      socket.destroy();
      return world.target.saw(word) ? open(`the target got it (${said})`) : blocked(said);
    },
  },
  {
    id: 'tls.encrypted-allowed',
    title: 'an encrypted part (ECH) in a hello for the name that was connected to, as browsers send it',
    async run(world) {
      if (!world.carries) return skipped(NOTHING);
      const name = `${world.target.word()}.wild.report.example`;
      const part = world.target.word();
      const said = await sendPieces(world, name, [encrypted(name, part)]);
      return world.target.saw(part) ? works(said) : broken(said);
    },
  },
  {
    id: 'tls.encrypted-looked-into',
    title: 'an encrypted part (ECH) in a hello, where the server looks into TLS',
    async run(world) {
      if (!world.carries) return skipped(NOTHING);
      const part = world.target.word();
      const said = await sendPieces(world, LOOKED_INTO, [encrypted(LOOKED_INTO, part)]);
      return world.target.saw(part)
        ? open(`the target got it (${said})`)
        : blocked(`it ends at the server (${said})`);
    },
  },
  {
    id: 'carrier.bomb-secret',
    title: 'an answer that grows a thousandfold, where the server hides a secret in answers',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const name = 'vault.report.example';
      const from = process.memoryUsage().rss;
      const request = `GET /bomb HTTP/1.1\r\nHost: ${name}:${world.target.port}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n`;
      let said = 'no answer';
      for (let tries = 0; tries < 3 && said === 'no answer'; tries++)
        said = await ask(world, name, [request]);
      const grown = Math.round((process.memoryUsage().rss - from) / 2 ** 20);
      return grown > 192
        ? open(`the server grew by ${grown} MiB (${said})`)
        : blocked(`the server did not grow (${said})`);
    },
  },
];
