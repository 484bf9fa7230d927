import { asDenial } from './as-denial.ts';
import type { Exchange } from './exchange.ts';

/** Runs what carries one request, and records how it ended. Rejects with a `Denial`. */
export async function runExchange(exchange: Exchange, work: () => Promise<void>): Promise<void> {
  try {
    await work();
    exchange.end();
  } catch (error) {
    const denial = asDenial(error);
    exchange.end(denial);
    throw denial;
  }
}
