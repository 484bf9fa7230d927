import { Argument } from 'commander';
import { installGvisor } from '../lib/install-gvisor.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { Verb } from '../verb.ts';

export const installVerb: Verb = (program) => {
  program
    .command('install')
    .description('build and install what this machine can do without, such as a current gVisor')
    .addArgument(new Argument('<what>', 'gvisor: takes about two minutes and needs Go').choices(['gvisor']))
    .option('--force', 'build also if a current version is there')
    .option('--json', 'print JSON')
    .action(async (_what: string, options: { force?: boolean; json?: boolean }) => {
      const installed = await installGvisor({ force: options.force === true });
      if (options.json) return printJson(installed);
      print(`${installed.version}  ${installed.program}`);
      if (!installed.built) return note('It is current, so nothing was built.');
      note('A server that starts from now on uses it; restart one that runs with "cay down && cay up".');
      note('Memory that another version has kept is refused: wake hibernated sandboxes before the restart.');
    });
};
