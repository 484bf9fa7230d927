/** The operator's own proxy, through which everything goes out: HTTP CONNECT or SOCKS5. */
import { isIP, type Socket } from 'node:net';
import { addressBytes } from '../../lib/address-kind.ts';

export interface UpstreamProxy {
  readonly kind: 'http' | 'socks5';
  readonly host: string;
  readonly port: number;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  /**
   * Who resolves names. By default this server does, and the proxy is given the pinned address. `proxy` is
   * for machines that cannot resolve public names; then private addresses behind names are the proxy's to
   * refuse.
   */
  readonly resolve?: 'here' | 'proxy' | undefined;
}

export interface ProxyTarget {
  /** An address, or a name. */
  readonly host: string;
  readonly port: number;
}

const MAX_HEAD = 16 * 1024;

/** Reads `http://user:password@host:port` or `socks5://…`. */
export function parseUpstreamProxy(text: string): UpstreamProxy {
  const url = URL.parse(text);
  const kind =
    url?.protocol === 'http:' ? 'http' : url && /^socks5h?:$/.test(url.protocol) ? 'socks5' : undefined;
  // The text may have a password in it, so no message repeats it.
  if (!url || !kind || url.hostname === '')
    throw new Error('A proxy is http://host:port or socks5://host:port');
  return {
    kind,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? (kind === 'http' ? 80 : 1080) : Number(url.port),
    ...(url.username !== '' && {
      username: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
    }),
    ...(url.protocol === 'socks5h:' && { resolve: 'proxy' as const }),
  };
}

export async function throughProxy(socket: Socket, proxy: UpstreamProxy, target: ProxyTarget): Promise<void> {
  const reader = new Exact(socket);
  try {
    await (proxy.kind === 'http' ? connectHttp : connectSocks)(socket, reader, proxy, target);
  } finally {
    reader.release();
  }
}

async function connectHttp(socket: Socket, reader: Exact, proxy: UpstreamProxy, { host, port }: ProxyTarget) {
  const authority = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
  const credentials = Buffer.from(`${proxy.username}:${proxy.password ?? ''}`).toString('base64');
  const lines = [`CONNECT ${authority} HTTP/1.1`, `Host: ${authority}`];
  if (proxy.username !== undefined) lines.push(`Proxy-Authorization: Basic ${credentials}`);
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  const head = (await reader.until('\r\n\r\n', MAX_HEAD)).toString('latin1');
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1];
  if (status === undefined || !status.startsWith('2'))
    throw new Error(`the proxy answers ${status ?? 'something other than HTTP'}`);
}

async function connectSocks(
  socket: Socket,
  reader: Exact,
  proxy: UpstreamProxy,
  { host, port }: ProxyTarget,
) {
  const named = proxy.username !== undefined;
  socket.write(Buffer.from(named ? [5, 1, 2] : [5, 1, 0]));
  const [version, method] = await reader.bytes(2);
  if (version !== 5 || method !== (named ? 2 : 0))
    throw new Error('the proxy refuses the way to authenticate');
  if (named) {
    const [user, password] = [Buffer.from(proxy.username!), Buffer.from(proxy.password ?? '')];
    if (user.length > 255 || password.length > 255)
      throw new Error('the credentials of the proxy are too long');
    socket.write(
      Buffer.concat([Buffer.from([1, user.length]), user, Buffer.from([password.length]), password]),
    );
    if ((await reader.bytes(2))[1] !== 0) throw new Error('the proxy refuses the credentials');
  }
  const family = isIP(host);
  const address =
    family === 0
      ? Buffer.concat([Buffer.from([3, Buffer.byteLength(host)]), Buffer.from(host)])
      : Buffer.concat([Buffer.from([family === 4 ? 1 : 4]), addressBytes(host)]);
  socket.write(Buffer.concat([Buffer.from([5, 1, 0]), address, Buffer.from([port >> 8, port & 255])]));
  const [, reply, , type] = await reader.bytes(4);
  if (reply !== 0) throw new Error(`the proxy answers with SOCKS error ${reply}`);
  const length = type === 1 ? 4 : type === 4 ? 16 : (await reader.bytes(1))[0]!;
  await reader.bytes(length + 2);
}

/** Reads exactly so many bytes from a socket, and gives back what is not asked for. */
class Exact {
  readonly #socket: Socket;
  #buffer = Buffer.alloc(0);
  #wake: (() => void) | undefined;
  #ended = false;
  readonly #onReadable = () => {
    for (let chunk: Buffer | null; (chunk = this.#socket.read() as Buffer | null) !== null;)
      this.#buffer = Buffer.concat([this.#buffer, chunk]);
    this.#wake?.();
  };
  readonly #onEnd = () => {
    this.#ended = true;
    this.#wake?.();
  };

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('readable', this.#onReadable).on('end', this.#onEnd).on('close', this.#onEnd);
  }

  async bytes(count: number): Promise<Buffer> {
    while (this.#buffer.length < count) await this.#more();
    return this.#take(count);
  }

  async until(mark: string, most: number): Promise<Buffer> {
    for (;;) {
      const at = this.#buffer.indexOf(mark);
      if (at !== -1) return this.#take(at + mark.length);
      if (this.#buffer.length > most) throw new Error('the answer of the proxy is too long');
      await this.#more();
    }
  }

  release(): void {
    this.#socket.off('readable', this.#onReadable).off('end', this.#onEnd).off('close', this.#onEnd);
    if (this.#buffer.length > 0 && !this.#socket.destroyed) this.#socket.unshift(this.#buffer);
  }

  #take(count: number): Buffer {
    const taken = this.#buffer.subarray(0, count);
    this.#buffer = this.#buffer.subarray(count);
    return taken;
  }

  async #more(): Promise<void> {
    if (this.#ended) throw new Error('the proxy hung up');
    await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}
