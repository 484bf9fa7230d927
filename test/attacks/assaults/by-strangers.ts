/** What a client without any key can send. */
import { again, type Assault } from './assault.ts';

const strangers: Assault = {
  name: 'requests without a key',
  open: async ({ stranger }) => ({
    run: (signal, done) =>
      again(32, signal, async () => {
        await stranger('GET', '/v1/sandboxes', {
          headers: { authorization: `Bearer e2b_${'0'.repeat(40)}` },
          signal,
        });
        done();
      }),
  }),
};

const signatures: Assault = {
  name: 'signatures that fit nothing',
  async open({ alice, stranger }) {
    // The more sandboxes there are whose signature it could be, the more there is to try.
    for (let number = 0; number < 20; number++)
      await alice.call('POST', '/sandboxes', { body: { templateID: 'base', timeout: 600 } });
    return {
      run: (signal, done) =>
        again(32, signal, async () => {
          await stranger('GET', `/files?path=x&signature=v1_${'A'.repeat(43)}`, { signal });
          done();
        }),
    };
  },
};

const malformed: Assault = {
  name: 'malformed requests',
  open: async ({ raw }) => ({
    run: (signal, done) =>
      again(16, signal, async () => {
        await raw(
          `GET ${'/x'.repeat(200)} HTTP/1.1\r\nHost: a b\r\nX: \u0001\r\nContent-Length: -1\r\n\r\n`,
          { timeoutMs: 1000 },
        );
        done();
      }),
  }),
};

export const BY_STRANGERS: readonly Assault[] = [strangers, signatures, malformed];
