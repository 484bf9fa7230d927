import type { Campaign } from '../support/campaign.ts';
import { allowances } from './allowances.ts';
import { api } from './api.ts';
import { applications } from './applications.ts';
import { lyingGuest } from './lying-guest.ts';
import { requests } from './requests.ts';
import { tokens } from './tokens.ts';

/** All campaigns of `npm run attacks`. */
export const CAMPAIGNS: readonly Campaign[] = [allowances, api, applications, lyingGuest, requests, tokens];
