import type { Reporter } from 'vitest/node';
import { whyLater } from './tier.ts';

/** Says at the end of a run that the long tier was left out. */
export class LaterTier implements Reporter {
  onTestRunEnd(): void {
    if (whyLater() !== undefined)
      console.log('This was the short tier of the tests. "npm run test:all" runs the long tier too.');
  }
}
