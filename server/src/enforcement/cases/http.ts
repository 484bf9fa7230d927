/**
 * Requests on connections that are allowed, for something that is not. Each has a word in its path: the wall
 * holds if the target never sees it.
 */
import { connect } from 'node:http2';
import type { Duplex } from 'node:stream';
import {
  blocked,
  broken,
  type CaseWorld,
  type EnforcementCase,
  open,
  type Outcome,
  skipped,
  works,
} from '../enforcement-case.ts';

const NAME = 'web.report.example';

/** Sends bytes, and gives what comes back within a moment. */
export async function exchange(
  world: CaseWorld,
  name: string,
  bytes: readonly (string | Buffer)[],
): Promise<string> {
  const end = await world.probe.relay(name, world.target.port);
  if (typeof end === 'string') return end;
  const said = readFor(end, 1500);
  for (const [at, piece] of bytes.entries()) {
    if (at > 0) await new Promise((resolve) => setTimeout(resolve, 60));
    if (!end.destroyed) end.write(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece);
  }
  return said;
}

function readFor(end: Duplex, ms: number): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    const done = () => {
      clearTimeout(timer);
      end.destroy();
      resolve(text === '' ? 'no answer' : text);
    };
    let timer = setTimeout(done, ms);
    end.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString('latin1')).slice(0, 16_384);
      // More may come at once, and not much later.
      clearTimeout(timer);
      timer = setTimeout(done, 250);
    });
    end.once('end', done).once('close', done);
  });
}

const first = (said: string) => said.split('\r\n')[0]!.slice(0, 80);

type Bytes = (word: string, host: string) => readonly (string | Buffer)[];

/** A case that sends `bytes`, which get the word to look for and the Host that is allowed. */
const tried =
  (verdict: (arrived: boolean, said: string) => Outcome) =>
  (id: string, title: string, bytes: Bytes, name = NAME): EnforcementCase => ({
    id: `http.${id}`,
    title,
    async run(world) {
      if (!world.carries) return skipped('this server carries nothing out');
      const word = world.target.word();
      const said = await exchange(world, name, bytes(word, `${name}:${world.target.port}`));
      return verdict(world.target.saw(`/${word}`), first(said));
    },
  });
const refused = tried((arrived, said) => (arrived ? open(`the target got it (${said})`) : blocked(said)));
const allowed = tried((arrived, said) => (arrived ? works(said) : broken(said)));

const OTHER = 'other.report.example';
const get = (path: string, host: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** A request by HTTP/2 without TLS, with pseudo-headers of its own. */
const http2 = (
  id: string,
  title: string,
  headers: (word: string, host: string) => Record<string, string>,
  good = false,
): EnforcementCase => ({
  id: `http.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const end = await world.probe.relay(NAME, world.target.port);
    if (typeof end === 'string') return good ? broken(end) : blocked(end);
    const word = world.target.word();
    const host = `${NAME}:${world.target.port}`;
    const said = await new Promise<string>((resolve) => {
      const session = connect(`http://${host}`, { createConnection: () => end });
      const done = (text: string) => {
        clearTimeout(timer);
        session.destroy();
        end.destroy();
        resolve(text);
      };
      const timer = setTimeout(() => done('no answer'), 3000);
      session.on('error', (error) => done(error.message));
      session.on('close', () => done('closed'));
      const request = session.request(headers(word, host));
      request.on('response', (answer) => done(`status ${answer[':status']}`));
      request.on('error', (error) => done(error.message));
      request.end();
    });
    const saw = world.target.saw(`/${word}`);
    if (good) return saw ? works(said) : broken(said);
    return saw ? open(`the target got it (${said})`) : blocked(said);
  },
});

export const HTTP: readonly EnforcementCase[] = [
  allowed('allowed', 'a request to a name that is allowed', (word, host) => [get(`/${word}`, host)]),
  allowed('absolute-form', 'the same in absolute form', (word, host) => [
    get(`http://${host}/${word}`, host),
  ]),
  allowed('pipelined', 'two requests at once', (word, host) => [get('/one', host) + get(`/${word}`, host)]),
  allowed(
    'condition',
    'a request that a condition allows',
    (word, host) => [get(`/open/${word}`, host)],
    'api.report.example',
  ),
  refused('host', 'another name in Host', (word) => [get(`/${word}`, OTHER)]),
  refused('host-address', 'an address in Host', (word) => [get(`/${word}`, '127.0.0.1')]),
  refused('host-port', 'another port in Host', (word) => [get(`/${word}`, `${NAME}:1`)]),
  refused('host-empty', 'nothing in Host', (word) => [get(`/${word}`, '')]),
  refused('host-missing', 'no Host', (word) => [`GET /${word} HTTP/1.1\r\n\r\n`]),
  refused('host-twice', 'two Hosts', (word, host) => [get(`/${word}`, host, `Host: ${OTHER}\r\n`)]),
  refused('host-user', 'a user in Host', (word, host) => [get(`/${word}`, `${host}@${OTHER}`)]),
  refused('host-comma', 'a list in Host', (word, host) => [get(`/${word}`, `${host}, ${OTHER}`)]),
  refused('host-folded', 'Host over two lines', (word, host) => [
    `GET /${word} HTTP/1.1\r\nX: y\r\n Host: ${host}\r\nHost: ${OTHER}\r\n\r\n`,
  ]),
  refused('host-lookalike', 'a Host with letters that look alike', (word) => [
    get(`/${word}`, 'w\u00e9b.report.example'),
  ]),
  refused('absolute-other', 'another name in absolute form', (word, host) => [
    get(`http://${OTHER}/${word}`, host),
  ]),
  refused('absolute-user', 'a user in absolute form', (word, host) => [
    get(`http://${host}@${OTHER}/${word}`, host),
  ]),
  refused('connect', 'CONNECT through an allowed host', (word) => [
    `CONNECT ${OTHER}:443 HTTP/1.1\r\nHost: ${OTHER}:443\r\n\r\n`,
    get(`/${word}`, OTHER),
  ]),
  refused('connect-own', 'CONNECT to the allowed host itself', (word, host) => [
    `CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    get(`/${word}`, OTHER),
  ]),
  refused('pipelined-other', 'another name in the second request', (word, host) => [
    get('/one', host) + get(`/${word}`, OTHER),
  ]),
  refused('later-other', 'another name in a later request', (word, host) => [
    get('/one', host),
    get(`/${word}`, OTHER),
  ]),
  refused('smuggle-cl-te', 'a request hidden by two lengths (CL.TE)', (word, host) => {
    const inner = get(`/${word}`, OTHER);
    return [
      `POST /one HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${inner.length + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`,
    ];
  }),
  refused('smuggle-te-cl', 'a request hidden by two lengths (TE.CL)', (word, host) => {
    const inner = get(`/${word}`, OTHER);
    return [
      `POST /one HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n${inner.length.toString(16)}\r\n${inner}\r\n0\r\n\r\n`,
    ];
  }),
  refused('smuggle-te-te', 'a coding that is written oddly', (word, host) => [
    `POST /one HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: xchunked\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n${get(`/${word}`, OTHER)}`,
  ]),
  refused('smuggle-two-lengths', 'two lengths that differ', (word, host) => [
    `POST /one HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\n${get(`/${word}`, OTHER)}`,
  ]),
  refused('smuggle-sign', 'a length with a sign', (word, host) => [
    `POST /one HTTP/1.1\r\nHost: ${host}\r\nContent-Length: +0\r\n\r\n${get(`/${word}`, OTHER)}`,
  ]),
  refused('smuggle-line-feeds', 'lines that end by a line feed alone', (word, host) => [
    `GET /one HTTP/1.1\nHost: ${host}\n\nGET /${word} HTTP/1.1\nHost: ${OTHER}\n\n`,
  ]),
  refused('smuggle-chunk', 'a chunk whose size is too large to be read', (word, host) => [
    `POST /one HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n${get(`/${word}`, OTHER)}`,
  ]),
  refused('smuggle-extension', 'a chunk extension with a line feed', (word, host) => [
    `POST /one HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n${get(`/${word}`, OTHER)}`,
  ]),
  refused('smuggle-upgrade', 'an upgrade that is followed by another request', (word, host) => [
    get(
      '/one',
      host,
      'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n',
    ),
    get(`/${word}`, OTHER),
  ]),
  refused('zero-byte', 'a zero byte in a header', (word, host) => [get(`/${word}`, host, 'X: a\0b\r\n')]),
  refused('line-break', 'a carriage return in a header', (word, host) => [
    get(`/${word}`, host, `X: a\rHost: ${OTHER}\r\n`),
  ]),
  refused('letter-by-letter', 'another name, letter by letter', (word) =>
    get(`/${word}`, OTHER).split(/(?<=^.{0,5})/s),
  ),
  refused(
    'condition-method',
    'a method that a condition refuses',
    (word, host) => [`POST /open/${word} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\n\r\n`],
    'api.report.example',
  ),
  refused(
    'condition-override',
    'a method that is overridden by a header',
    (word, host) => [get(`/open/${word}`, host, 'X-HTTP-Method-Override: DELETE\r\n')],
    'api.report.example',
  ),
  refused(
    'condition-path',
    'a path that a condition refuses',
    (word, host) => [get(`/closed/${word}`, host)],
    'api.report.example',
  ),
  refused(
    'condition-dots',
    'a path that goes up',
    (word, host) => [get(`/open/../closed/${word}`, host)],
    'api.report.example',
  ),
  refused(
    'condition-encoded',
    'a path that goes up in disguise',
    (word, host) => [get(`/open/%2e%2e/closed/${word}`, host)],
    'api.report.example',
  ),
  refused(
    'condition-backslash',
    'a path with a backslash',
    (word, host) => [get(`/open\\..\\closed/${word}`, host)],
    'api.report.example',
  ),
  refused(
    'condition-slashes',
    'a path with two slashes',
    (word, host) => [get(`//closed/${word}`, host)],
    'api.report.example',
  ),
  refused(
    'condition-raw',
    'bytes that are no request, where requests decide',
    (word) => [`RAW /${word}\n`],
    'api.report.example',
  ),
  http2('http2', 'HTTP/2 to a name that is allowed', (word) => ({ ':path': `/${word}` }), true),
  http2('http2-authority', 'another name in :authority', (word) => ({
    ':path': `/${word}`,
    ':authority': OTHER,
  })),
  http2('http2-host', 'another name in Host of HTTP/2', (word) => ({ ':path': `/${word}`, host: OTHER })),
  http2('http2-connect', 'CONNECT by HTTP/2', (word) => ({
    ':method': 'CONNECT',
    ':authority': `${OTHER}:443/${word}`,
  })),
];
