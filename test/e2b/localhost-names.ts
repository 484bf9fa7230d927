/** Loaded before a program: names below localhost are this machine, also where no name service says so. */
import dns from 'node:dns';

const lookup = dns.lookup;
dns.lookup = ((name: string, ...rest: unknown[]) =>
  Reflect.apply(lookup, dns, [
    name.endsWith('.localhost') ? '127.0.0.1' : name,
    ...rest,
  ]) as unknown) as typeof dns.lookup;
