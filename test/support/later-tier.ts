import type { Reporter } from 'vitest/node';
import { MIDDLE, tier } from './tier.ts';

/** Says at the end of a run which tests were left out. */
export class LaterTier implements Reporter {
  onTestRunEnd(): void {
    // Who names files, titles or a project asks for these alone.
    if (process.argv.slice(2).join(' ') !== 'run') return;
    if (tier() === 'short')
      console.log(
        `This was the short tier of the tests. "npm run test:middle" runs these files:\n${MIDDLE.map((files) => `  ${files}`).join('\n')}`,
      );
    if (tier() !== 'all') console.log('"npm run test:all" runs the long tier too.');
  }
}
