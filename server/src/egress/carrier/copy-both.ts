import type { Duplex } from 'node:stream';
import { copy } from './copy.ts';
import { Denial } from './denial.ts';

export interface CopyBothOptions {
  /** Called with every chunk before it goes on. Answers for how long to wait; what it throws ends both. */
  out(chunk: Buffer): number;
  in(chunk: Buffer): number;
  /** Called once or more, when both directions have ended or one has failed. */
  end(denial: Denial | undefined): void;
}

/** Copies bytes between a program and its target, until both directions have ended. */
export function copyBoth(program: Duplex, target: Duplex, options: CopyBothOptions): void {
  const failed = (error: unknown) => options.end(Denial.from(error, 'closed', 'It ended'));
  let open = 2;
  const half = () => {
    if (--open === 0) options.end(undefined);
  };
  target.once('error', () => options.end(new Denial('closed', 'The target ended the connection')));
  program.once('finish', half);
  target.once('finish', half);
  copy(program, target, (chunk) => options.out(chunk), failed);
  copy(target, program, (chunk) => options.in(chunk), failed);
}
