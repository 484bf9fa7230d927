import { QUOTAS, namesIn, quotasIn } from './amounts.ts';
import { gathered } from './kinds.ts';
import { LISTED, setting } from './setting.ts';

/** What projects may use. */
export const quotaSettings = {
  defaultQuota: setting(gathered(quotasIn), {
    group: 'quotas',
    value: 'name=value',
    help: `what a project has that was given no quota, of ${namesIn(QUOTAS)}; ${LISTED}`,
    repeat: true,
  }),
  maxQuota: setting(gathered(quotasIn), {
    group: 'quotas',
    value: 'name=value',
    help: `the most that any project has, of the same; "none" is any amount; ${LISTED}`,
    repeat: true,
  }),
};
