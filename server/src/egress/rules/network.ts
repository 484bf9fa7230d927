import { type AddressKind, addressBytes, specialRange } from '../../lib/address-kind.ts';

/** A range of addresses, in its canonical form: no bit is set behind the prefix. */
export interface Network {
  readonly address: string;
  readonly bits: number;
}

/** Whether no bit is set behind the prefix. */
export function isCanonicalNetwork({ address, bits }: Network): boolean {
  return networkAddress(address, bits) === address;
}

/** The first address of the network that an address is in. */
export function networkAddress(address: string, bits: number): string {
  const bytes = addressBytes(address).map((byte, index) => byte & maskOf(bits - 8 * index));
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) =>
    ((bytes[2 * index]! << 8) | bytes[2 * index + 1]!).toString(16),
  );
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}

/** Answers whether an address, in canonical form, is in a network, without parsing the network each time. */
export interface NetworkMatcher {
  contains(bytes: Uint8Array): boolean;
  /** Whether the network has this one address alone. */
  readonly single: boolean;
  /** The special kind that the whole network is of; nothing if a part of it is public, or of another kind. */
  readonly special: AddressKind | undefined;
}

export function networkMatcher({ address, bits }: Network): NetworkMatcher {
  const prefix = addressBytes(address);
  const whole = bits >> 3;
  const mask = maskOf(bits - 8 * whole);
  const range = specialRange(address);
  return {
    single: bits === prefix.length * 8,
    special: range && range.bits <= bits ? range.kind : undefined,
    contains(bytes) {
      if (bytes.length !== prefix.length) return false;
      for (let index = 0; index < whole; index++) if (bytes[index] !== prefix[index]) return false;
      return mask === 0 || (bytes[whole]! & mask) === prefix[whole];
    },
  };
}

function maskOf(bits: number): number {
  return bits >= 8 ? 255 : bits <= 0 ? 0 : (255 << (8 - bits)) & 255;
}
