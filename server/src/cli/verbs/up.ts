import { accessSync, constants } from 'node:fs';
import { resolveSettings, type Resolved } from '../../settings/resolve-settings.ts';
import { policyOf } from '../../settings/policy-of.ts';
import type { SettingName } from '../../settings.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { pathError } from '../lib/path-error.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { withSettings } from '../lib/settings-options.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  detach?: boolean;
}

/** Files that have to be there before anything is begun. */
const FILES: readonly (readonly [SettingName, what: string])[] = [
  ['tlsCert', 'certificate'],
  ['tlsKey', 'private key'],
  ['restore', 'backup'],
  ['registryConfig', 'credentials'],
];

export const upVerb: Verb = (program, composition) => {
  const command = program
    .command('up')
    .description('start the server')
    .option('-d, --detach', 'in the background; returns when it is ready');
  withCommonOptions(withSettings(command), { json: false })
    .addHelpText(
      'after',
      '\nA flag beats its variable. --no-… turns off what a variable turned on.\nA secret is safer in its variable: everybody on the machine may see flags.',
    )
    .action(async (options: Options) => {
      if (options.url !== undefined)
        throw usageError('"up" starts a server on this machine and takes no --url');
      const resolved = resolveSettings({ ...options }, process.env);
      requirePossible(resolved);
      const policy = policyOf(resolved);
      const { prepareHost } = await import('../lib/prepare-host.ts');
      prepareHost(resolved.settings.backend);
      if (options.detach) {
        const { upDetached } = await import('../up/up-detached.ts');
        return upDetached(composition, resolved);
      }
      const { upForeground } = await import('../up/up-foreground.ts');
      return upForeground(composition, resolved, policy);
    });
};

/** What no setting by itself can tell. */
function requirePossible({ settings, nameOf }: Resolved): void {
  const { tlsCert, tlsKey, platformRules, backend } = settings;
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw usageError(`${nameOf('tlsCert')} and ${nameOf('tlsKey')} belong together`);
  if (platformRules && platformRules.length > 0 && backend.length < 2)
    throw usageError(`${nameOf('platformRules')} needs several backends`, 'such as --backend local,docker');
  if (settings.database !== undefined && settings.restore !== undefined)
    throw usageError(
      `--restore is for records in the data directory, and ${nameOf('database')} keeps them elsewhere`,
      'restore the database with the tools of PostgreSQL',
    );
  for (const [name, what] of FILES) requireReadable(what, settings[name] as string | undefined);
}

function requireReadable(what: string, file: string | undefined): void {
  if (file === undefined) return;
  try {
    accessSync(file, constants.R_OK);
  } catch (error) {
    throw pathError(`read the ${what}`, file, error);
  }
}
