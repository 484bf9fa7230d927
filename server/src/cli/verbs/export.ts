import { bytesOf } from '@cay/sdk/client';
import { atSnapshot } from '../lib/at-snapshot.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { printJson } from '../lib/output.ts';
import { showProgress } from '../lib/progress.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';
import { writeOut } from '../lib/write-out.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';

export const exportVerb: Verb = (program) => {
  const command = program
    .command('export')
    .description('write files of a sandbox, as they are or were, to a tar archive')
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .argument('[path...]', 'which files and directories (default: all)')
    .option('--at <snapshot>', 'a snapshot’s id or name, or a turn’s number (default: now)')
    .option('-o, --output <file>', 'where to (default: standard output)');
  withCommonOptions(command)
    .addHelpText(
      'after',
      '\n  cay export my-box /home/user/project -o project.tar\n  cay export my-box --at 3 /etc | tar tv',
    )
    .action(
      async (ref: string, paths: string[], options: CommonOptions & { at?: string; output?: string }) => {
        const { at, output, json } = options;
        if (output === undefined && process.stdout.isTTY)
          throw usageError('An archive is not for a terminal', 'give a file with --output, or a pipe');
        if (output === undefined && json) throw usageError('--json needs --output');
        const sandbox = await openClient(options).sandbox(ref);
        const chosen = { ...(at !== undefined && { at }), ...(paths.length > 0 && { paths }) };
        const body = bytesOf(await atSnapshot(ref, () => sandbox.export(chosen)));
        if (output === undefined) return writeOut(body);
        const progress = showProgress(`${output} ←`);
        let bytes = 0;
        await writeWhole(
          output,
          counted(body, (count) => progress.bytes((bytes = count))),
          { mode: 0o644 },
        );
        progress.finish();
        if (json) printJson({ file: output, bytes });
      },
    );
};
