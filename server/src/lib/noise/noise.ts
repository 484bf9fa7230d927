/**
 * `Noise_NNpsk0_25519_ChaChaPoly_SHA256` of the Noise Protocol Framework (revision 34): two sides that share
 * a key make an encrypted channel with ephemeral session keys.
 *
 * The initiator writes the first message and the responder answers; then both `split`. The responder knows
 * that a first message was made with the key, but not that it is fresh: only a message decrypted after the
 * split proves that.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  diffieHellman,
  generateKeyPairSync,
  type KeyObject,
} from 'node:crypto';

const PROTOCOL = 'Noise_NNpsk0_25519_ChaChaPoly_SHA256';
const CIPHER = 'chacha20-poly1305';
const KEY_BYTES = 32;
const TAG_BYTES = 16;
/** No message is longer, whichever way it goes. */
export const MAX_NOISE_BYTES = 65_535;
/** The largest payload of a message after the handshake. */
export const MAX_PLAIN_BYTES = MAX_NOISE_BYTES - TAG_BYTES;
/** A handshake message without a payload. */
export const HANDSHAKE_BYTES = KEY_BYTES + TAG_BYTES;

/** The DER prefix that makes a raw key a key for Node. */
const PKCS8 = Buffer.from('302e020100300506032b656e04220420', 'hex');
const SPKI = Buffer.from('302a300506032b656e032100', 'hex');

export interface NoiseOptions {
  initiator: boolean;
  /** The 32 bytes that both sides know. */
  key: Uint8Array;
  /** Context data that both sides must agree on. */
  prologue?: Uint8Array;
  /** The private ephemeral key, normally random; set for published test vectors. */
  ephemeral?: Uint8Array;
}

export interface NoiseHandshake {
  /** Writes the next message. */
  write(payload?: Uint8Array): Buffer;
  /**
   * Reads the next message of the other side and returns its payload. Throws if it was not made with the key.
   */
  read(message: Uint8Array): Buffer;
  /** After one message of each side. */
  split(): NoiseChannel;
}

/** Messages must be decrypted in the order of encryption, each once. */
export interface NoiseChannel {
  seal(plain: Uint8Array): Buffer;
  /** Throws if it is not the next message, unchanged. */
  open(message: Uint8Array): Buffer;
}

interface Cipher {
  seal(plain: Uint8Array, bound?: Uint8Array): Buffer;
  open(message: Uint8Array, bound?: Uint8Array): Buffer;
}

export function noiseHandshake({
  initiator,
  key,
  prologue = Buffer.alloc(0),
  ephemeral,
}: NoiseOptions): NoiseHandshake {
  if (key.length !== KEY_BYTES)
    throw new RangeError(`A key of ${key.length} bytes cannot be: must be ${KEY_BYTES}`);
  const own = ephemeral ? privateKeyOf(ephemeral) : generateKeyPairSync('x25519').privateKey;
  const ownPublic = rawOf(createPublicKey(own));
  let theirs: KeyObject | undefined;
  let hash: Buffer = createHash('sha256').update(PROTOCOL).digest();
  let chaining = hash;
  let cipher: Cipher | undefined;
  let step = 0;
  mixHash(prologue);

  function mixHash(data: Uint8Array): void {
    hash = createHash('sha256').update(hash).update(data).digest();
  }

  function mixKey(data: Uint8Array): void {
    const [next, sealing] = expand(chaining, data, 2);
    chaining = next!;
    cipher = cipherOf(sealing!);
  }

  function mixPublic(part: Buffer): void {
    if (step === 0) {
      const [next, bound, sealing] = expand(chaining, key, 3);
      chaining = next!;
      mixHash(bound!);
      cipher = cipherOf(sealing!);
    }
    mixHash(part);
    mixKey(part);
    if (step === 1) mixKey(diffieHellman({ privateKey: own, publicKey: theirs! }));
    step++;
  }

  function requireStep(writing: boolean): void {
    if (step > 1 || (step === 0) !== (writing === initiator))
      throw new Error('This is not the next message of a handshake');
  }

  return {
    write(payload = Buffer.alloc(0)) {
      requireStep(true);
      mixPublic(ownPublic);
      const sealed = cipher!.seal(payload, hash);
      mixHash(sealed);
      return Buffer.concat([ownPublic, sealed]);
    },
    read(message) {
      requireStep(false);
      if (message.length < HANDSHAKE_BYTES || message.length > MAX_NOISE_BYTES)
        throw new Error('A handshake message has not its size');
      const part = Buffer.from(message.subarray(0, KEY_BYTES));
      theirs = publicKeyOf(part);
      mixPublic(part);
      const sealed = message.subarray(KEY_BYTES);
      const payload = cipher!.open(sealed, hash);
      mixHash(sealed);
      return payload;
    },
    split() {
      if (step < 2) throw new Error('The handshake is not over');
      const [first, second] = expand(chaining, Buffer.alloc(0), 2).map(cipherOf);
      const [sending, receiving] = initiator ? [first!, second!] : [second!, first!];
      return { seal: (plain) => sending.seal(plain), open: (message) => receiving.open(message) };
    },
  };
}

/** A key that is used for one message after the other, in one direction. */
function cipherOf(raw: Buffer): Cipher {
  // With the bytes in its place each message would take four times as long to begin.
  const key = createSecretKey(raw);
  const nonce = Buffer.alloc(12);
  let next = 0n;
  const options = { authTagLength: TAG_BYTES };

  function advance(): void {
    nonce.writeBigUInt64LE(next, 4);
    next += 1n;
  }

  return {
    seal(plain, bound) {
      if (plain.length > MAX_PLAIN_BYTES)
        throw new RangeError(
          `A message of ${plain.length} bytes cannot be: must be ${MAX_PLAIN_BYTES} or less`,
        );
      advance();
      const sealing = createCipheriv(CIPHER, key, nonce, options);
      if (bound) sealing.setAAD(bound, { plaintextLength: plain.length });
      const sealed = sealing.update(plain);
      sealing.final();
      return Buffer.concat([sealed, sealing.getAuthTag()]);
    },
    open(message, bound) {
      const length = message.length - TAG_BYTES;
      if (length < 0 || message.length > MAX_NOISE_BYTES)
        throw new Error('A sealed message has not its size');
      advance();
      const opening = createDecipheriv(CIPHER, key, nonce, options);
      if (bound) opening.setAAD(bound, { plaintextLength: length });
      opening.setAuthTag(message.subarray(length));
      const plain = opening.update(message.subarray(0, length));
      // The plaintext must not be used before this returns.
      opening.final();
      return plain;
    },
  };
}

/** HKDF as Noise defines it. */
function expand(chaining: Buffer, input: Uint8Array, count: number): Buffer[] {
  const secret = createHmac('sha256', chaining).update(input).digest();
  const keys: Buffer[] = [];
  for (let number = 1; number <= count; number++) {
    keys.push(
      createHmac('sha256', secret)
        .update(keys.at(-1) ?? Buffer.alloc(0))
        .update(Buffer.of(number))
        .digest(),
    );
  }
  return keys;
}

const privateKeyOf = (raw: Uint8Array) =>
  createPrivateKey({ key: Buffer.concat([PKCS8, raw]), format: 'der', type: 'pkcs8' });
const publicKeyOf = (raw: Uint8Array) =>
  createPublicKey({ key: Buffer.concat([SPKI, raw]), format: 'der', type: 'spki' });
const rawOf = (key: KeyObject) => key.export({ format: 'der', type: 'spki' }).subarray(SPKI.length);
