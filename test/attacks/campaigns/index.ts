import type { Campaign } from '../support/campaign.ts';
import { allowances } from './allowances.ts';
import { api } from './api.ts';
import { applications } from './applications.ts';
import { egress } from './egress.ts';
import { images } from './images.ts';
import { lyingGuest } from './lying-guest.ts';
import { mcp } from './mcp.ts';
import { requests } from './requests.ts';
import { tokens } from './tokens.ts';
import { tools } from './tools.ts';

/** All campaigns of `npm run attacks`. */
export const CAMPAIGNS: readonly Campaign[] = [
  allowances,
  api,
  applications,
  egress,
  images,
  lyingGuest,
  mcp,
  requests,
  tokens,
  tools,
];
