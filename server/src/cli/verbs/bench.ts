import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CayError } from '@cay/sdk/client';
import { prepareHost } from '../lib/prepare-host.ts';
import type { Verb } from '../verb.ts';

const MAIN = fileURLToPath(new URL('../../../../bench/main.ts', import.meta.url));

export const benchVerb: Verb = (program) => {
  program
    .command('bench')
    .description('measure Cay on this machine beside docker, runc and runsc')
    .argument(
      '[section...]',
      'exec, create, files, idle, burst, travel, e2b, restart, api or kubernetes (default: all but the last)',
    )
    .action(async (sections: string[]) => {
      if (!existsSync(MAIN))
        throw new CayError('unsupported', 'The measurements are not part of the npm package', {
          hint: 'run "cay bench" in a clone of the repository',
        });
      prepareHost(['local']);
      const child = spawn(process.execPath, [MAIN, ...sections], { stdio: 'inherit' });
      process.exitCode = await new Promise<number>((resolve, reject) => {
        child.on('error', reject).on('exit', (code) => resolve(code ?? 1));
      });
    });
};
