/** What code in a sandbox does without asking anybody. */
import { again, type Assault, type Attack } from './assault.ts';
import type { Target } from '../support/target.ts';

/** Takes the place of the guest and sends frames for streams that do not exist, as many as it can. */
const LIE = `
import os, socket, struct, time
text = lambda word: bytes([0x60 + len(word)]) + word.encode()
frame = lambda kind, stream, payload: struct.pack('>IBBHI', len(payload), kind, 0, 0, stream) + payload
boot = os.urandom(16)
hello = frame(1, 0, b'\\xa4' + text('protocol') + b'\\x01' + text('version') + text('1') + text('boot') + b'\\x50' + boot + text('features') + b'\\x80')
flood = frame(6, 1000001, b'') * 5000
while True:
    try:
        link = socket.socket(socket.AF_UNIX)
        link.connect('/run/cay/guest.sock')
        link.sendall(hello)
        while True:
            link.sendall(flood)
    except OSError:
        time.sleep(0.3)
`;

/** Runs a program as root in a sandbox of its own, and again when it ends. */
async function running({ alice }: Target, argv: string[]): Promise<Attack> {
  const { id } = await alice.create();
  return {
    run: (signal, done) =>
      again(1, signal, async () => {
        const { status } = await alice.call('POST', `/v1/sandboxes/${id}/exec`, {
          body: { argv, user: 'root', timeoutMs: 60_000 },
          signal,
        });
        if (status !== 200) throw new Error(`exec answered ${status}`);
        done();
      }),
  };
}

const forkBomb: Assault = {
  name: 'fork bomb',
  open: (target) => running(target, ['bash', '-c', 'bomb() { bomb | bomb & }; bomb; sleep 1000']),
};

const busyLoops: Assault = {
  name: 'busy loops',
  open: (target) =>
    running(target, ['bash', '-c', 'for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait']),
};

const lyingGuest: Assault = {
  name: 'lying guest',
  open: (target) => running(target, ['python3', '-c', LIE]),
};

export const FROM_INSIDE: readonly Assault[] = [forkBomb, busyLoops, lyingGuest];
